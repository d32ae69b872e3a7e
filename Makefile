# Every target makes .venv by itself when it is missing or older than the list of packages.
#   make run                     everything, on the bundled sample
#   make run DATA=folder         the same on any folder; RUN=folder LIMIT=1 REPLACE=1 are options
#   make report RUN=folder       one HTML page of what the run reached; RECIPE=name
#   make test                    lint, types, import order, tests; make lint, make pytest: a part
#   make data                    download the competition's data and check it; COLLECTION=name DATA=folder
#   make submit RECIPE=name      merge, check, upload, confirm, score; RUN=folder DRY_RUN=1 FORCE=1 DIRTY=1
#   make scores                  fetch all scores into submissions/ledger.csv and show them
#   make leaderboard             the public leaderboard around us
#   make notebooks               execute and rebuild the notebooks, on the bundled sample; NOTEBOOK=name
#   make kernels-push NOTEBOOK=name   run one on Kaggle; SET="NAME=VALUE ..." RESUME=1 DIRTY=1
#   make kernels-status          how far the pushed notebooks are
#   make kernels-pull NOTEBOOK=name   bring the outputs back into runs/NAME; REPLACE=1
#   make kernels-package         only pack the code and what Kaggle's image lacks; DIRTY=1
#   make collect-sample          many architectures compiled and timed: hours; goes on; OUT=folder HOURS=4
#   make default-bundle          train the bundle that comes with the package: 20 minutes
#   make papers                  all published systems with the same time: 40 minutes; SHARED=folder of data
#   make bench-layout            our layout net against the winners': 45 minutes; SHARED=folder of data
#   make bench-tile              tile models out of fold, and on real TPU kernels: an hour; SHARED=...
#   make bench-lightgbm          layout LightGBM out of fold, and a million rows; SHARED=folder of data
#   make bench-study             tile models by the LightGBM study's splits; SHARED=folder of data
#   make bench-scale             what the competition's full scale costs here: 15 minutes, 4 GB of disk
#   make bench-segments          a step of segment training as graphs grow: 10 minutes, 5 GB of memory
PYTHON ?= python3
VENV := .venv
INSTALLED := $(VENV)/.installed
COLLECTS := $(VENV)/.collects
BIN := $(VENV)/bin
SHARED ?= ../shared/data
OPTIONS = $(if $(DATA),"$(DATA)") $(if $(RUN),--run "$(RUN)") $(if $(LIMIT),--limit) $(if $(REPLACE),--replace)
SUBMIT = $(if $(RECIPE),"$(RECIPE)") $(if $(RUN),--run "$(RUN)") $(if $(DRY_RUN),--dry-run) $(if $(FORCE),--force) $(if $(DIRTY),--allow-dirty)
OUT ?= build/collected
HOURS ?= 4
PUSH = $(foreach pair,$(SET),--set "$(pair)") $(if $(RESUME),--resume) $(if $(DIRTY),--allow-dirty)

.PHONY: run report test test-slow pytest lint silent-lint data submit scores leaderboard notebooks \
	kernels-package kernels-push kernels-status kernels-pull papers bench-layout bench-tile \
	bench-lightgbm bench-study bench-scale bench-segments collect-sample default-bundle clean

run: $(INSTALLED)
	$(BIN)/fastslow run $(OPTIONS)

report: $(INSTALLED)
	$(BIN)/fastslow report $(if $(RUN),--run "$(RUN)") $(if $(RECIPE),--recipe "$(RECIPE)")

data: $(INSTALLED)
	$(BIN)/fastslow data $(if $(DATA),"$(DATA)") $(if $(COLLECTION),--collection "$(COLLECTION)")

submit: $(INSTALLED)
	$(BIN)/fastslow submit $(SUBMIT)

scores: $(INSTALLED)
	$(BIN)/fastslow scores

leaderboard: $(INSTALLED)
	$(BIN)/fastslow leaderboard

notebooks: $(INSTALLED)
	$(BIN)/fastslow kernels build $(NOTEBOOK)

kernels-package: $(INSTALLED)
	$(BIN)/fastslow kernels package $(if $(DIRTY),--allow-dirty)

kernels-push: $(INSTALLED)
	$(BIN)/fastslow kernels push "$(NOTEBOOK)" $(PUSH)

kernels-status: $(INSTALLED)
	$(BIN)/fastslow kernels status

kernels-pull: $(INSTALLED)
	$(BIN)/fastslow kernels pull "$(NOTEBOOK)" $(if $(REPLACE),--replace)

# Lint runs beside the tests, which wait much; what it says stands below what they say.
test: $(COLLECTS)
	@mkdir -p build
	@$(MAKE) --jobs=2 --keep-going --no-print-directory pytest silent-lint; \
	ended=$$?; cat build/lint.txt; exit $$ended

pytest: $(COLLECTS)
	$(BIN)/pytest --numprocesses logical --dist loadgroup --no-loadscope-reorder

test-slow: $(COLLECTS)
	$(BIN)/pytest -m slow

silent-lint: $(COLLECTS)
	@$(MAKE) --no-print-directory lint > build/lint.txt 2>&1

lint: $(COLLECTS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench-tile: $(INSTALLED)
	$(BIN)/python -m tests.benchmarks.tile_models "$(SHARED)" build/benchmarks

bench-lightgbm: $(INSTALLED)
	$(BIN)/python -m tests.benchmarks.lightgbm_models "$(SHARED)" build/benchmarks

bench-study: $(INSTALLED)
	$(BIN)/python -m tests.benchmarks.lightgbm_study "$(SHARED)" build/benchmarks

bench-scale: $(INSTALLED)
	$(BIN)/python -m tests.benchmarks.full_scale build/full-scale

bench-segments: $(INSTALLED)
	$(BIN)/python -m tests.benchmarks.segments build/segments

# What `fastslow rank` ranks with where it is told nothing else; equal bytes on one machine.
default-bundle: $(INSTALLED)
	$(BIN)/fastslow run --run build/default --workers 1
	$(BIN)/fastslow pack build/default --distill --data stores/sample --out solution/serving/default.zip

collect-sample: $(COLLECTS)
	$(BIN)/python -m solution.collecting.sample "$(OUT)" --hours $(HOURS) --avoid "$(SHARED)/cpugraphs"

papers: $(INSTALLED)
	$(BIN)/python -m tests.benchmarks.papers "$(SHARED)/cpugraphs"

bench-layout: $(INSTALLED)
	$(BIN)/python -m tests.benchmarks.layout_nets "$(SHARED)/cpugraphs" --tpu "$(SHARED)/tpu" --out build/layout-nets

clean:
	rm -rf $(VENV) runs stores build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

$(COLLECTS): $(INSTALLED)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev,collect]"
	touch $@
