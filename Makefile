# Every target makes .venv by itself when it is missing or older than the list of packages.
#   make install                 .venv with fastslow, nothing trained
#   make run                     everything, on the bundled sample
#   make run DATA=folder         the same on any folder; RUN=folder LIMIT=1 REPLACE=1 EXPERIMENT=name HOURS=6
#   make demo                    a first minute: a few graphs, short trainings, a report that opens
#   make report RUN=folder       one HTML page of what the run reached; RECIPE=name
#   make test                    lint, types, import order, tests; make lint, make pytest: a part
#   make site                    the documentation as pages for a browser, in build/site
#   make attack                  single attacks, 4,000 mutations a kind of file, kills, power cuts: 20 minutes
#   make data                    download the competition's data and check it; COLLECTION=name DATA=folder
#   make submit RECIPE=name      merge, check, upload, confirm, score; RUN=folder DRY_RUN=1 FORCE=1 DIRTY=1 NOT_THERE=1
#   make scores                  fetch all scores into submissions/ledger.csv and show them
#   make leaderboard             the public leaderboard around us
#   make notebooks               execute and rebuild the notebooks, on the bundled sample; NOTEBOOK=name
#   make kernels-push NOTEBOOK=name   run one on Kaggle; SET="NAME=VALUE ..." BUNDLE= RESUME=1 DIRTY=1 FORCE=1
#   make kernels-status          how far the pushed notebooks are
#   make kernels-pull NOTEBOOK=name   bring the outputs back into runs/NAME; REPLACE=1
#   make kernels-share BUNDLE=file    upload a bundle as a private dataset; AS=name
#   make kernels-package         only pack the code and what Kaggle's image lacks; DIRTY=1
#   make collect-sample          many architectures compiled and timed: hours; goes on; OUT=folder HOURS=4
#   make fresh-set               the programs that a release is scored on: 50 minutes; OUT=folder RELEASE=0.2.0
#   make release-data            all measured programs as one file for a release, in build/; SHARED=folder
#   make default-bundle          train the bundle that comes with the package: half an hour; goes on
#   make papers                  all published systems with the same time: goes on; SHARED=folder of data
#   make papers-patient          each until it learns no more: hours; stopped, it goes on; SHARED=folder of data
#   make ablations               what the documents claim, with and without: goes on; SHARED=folder of data
#   make bench-cluster           a Ray with two nodes here: overhead, speed, small units, kills: 10 minutes
#   make bench-layout            our layout net against the winners': 45 minutes; SHARED=folder of data
#   make bench-tile              tile models out of fold, and on real TPU kernels: an hour; SHARED=...
#   make bench-lightgbm          layout LightGBM out of fold; SHARED=folder of data
#   make bench-study             tile models by the LightGBM study's splits; SHARED=folder of data
#   make bench-rank RUN=folder   what an answer takes: the bundle, the run's ensemble, its members
#   make bench-choose RUN=folder  regret of every search by measurements, in tables: 80 minutes; goes on; SHARED=...
#   make bench-choose-real       ten programs compiled, timed and chosen for, here: half an hour; goes on
#   make go                      placement, schedule and fusion beside all baselines: hours; goes on
#   make rehearsal SHARE=0.02    an imitation of the whole competition, every stage measured; KILLS=10; goes on
#   make bench-gpu               what a GPU takes for our nets beside a core of the CPU: 10 minutes
PYTHON ?= python3
VENV := .venv
INSTALLED := $(VENV)/.installed
EXTRAS := $(VENV)/.extras
BIN := $(VENV)/bin
INSTALL = PYTHONWARNINGS=ignore $(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable
SHARED ?= ../shared/data
OUT ?= build/collected
RELEASE ?= 0.1.0
HOURS ?= 4
SHARE ?= 0.02
KILLS ?= 10

# A variable that is 0 or no is off; one that nothing here reads is a slip of the pen.
KNOWN := AS BUNDLE COLLECTION DATA DIRTY DRY_RUN EXPERIMENT FORCE HOURS KILLS LIMIT NOTEBOOK NOT_THERE OUT PYTHON RECIPE RELEASE REPLACE \
	RESUME RUN SET SHARE SHARED VENV
GIVEN := $(foreach name,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(name)))),$(name)))
UNKNOWN := $(filter-out $(KNOWN) -% MAKE%,$(GIVEN))
ifneq ($(UNKNOWN),)
$(error $(UNKNOWN): nothing here reads it. There are $(KNOWN))
endif
on = $(if $(filter-out 0 no off false,$($(1))),$(2))
given = $(if $($(1)),$(2) "$($(1))")

OPTIONS = $(call given,DATA) $(call given,RUN,--run) $(call given,RECIPE,--recipe) \
	$(foreach name,$(EXPERIMENT),--experiment "$(name)") \
	$(call on,LIMIT,--limit) $(call on,REPLACE,--replace) \
	$(if $(filter command,$(origin HOURS)),--hours "$(HOURS)")
SUBMIT = $(call given,RECIPE) $(call given,RUN,--run) $(call on,DRY_RUN,--dry-run) \
	$(call on,FORCE,--force) $(call on,DIRTY,--allow-dirty) $(call on,NOT_THERE,--not-there)
TPU = $(if $(wildcard $(SHARED)/tpu),--tpu "$(SHARED)/tpu")
PUSH = $(foreach pair,$(SET),--set "$(pair)") $(call on,RESUME,--resume) $(call on,DIRTY,--allow-dirty) \
	$(call on,FORCE,--force) $(call given,BUNDLE,--bundle)

.PHONY: help install run demo report test test-slow attack pytest lint silent-lint site data submit scores leaderboard notebooks \
	kernels-package kernels-push kernels-status kernels-pull kernels-share papers papers-patient ablations bench-layout \
	bench-tile bench-lightgbm bench-study bench-gpu bench-rank bench-choose bench-choose-real bench-cluster rehearsal go collect-sample \
	fresh-set release-data measured default-bundle clean

help:
	@sed -n 's/^#   //p' Makefile

install: $(INSTALLED)

run: $(INSTALLED)
	$(BIN)/fastslow run $(OPTIONS)

demo: $(INSTALLED)
	$(BIN)/fastslow demo

report: $(INSTALLED)
	$(BIN)/fastslow report $(call given,RUN,--run) $(call given,RECIPE,--recipe)

data: $(INSTALLED)
	$(BIN)/fastslow data $(call given,DATA) $(call given,COLLECTION,--collection)

submit: $(INSTALLED)
	$(BIN)/fastslow submit $(SUBMIT)

scores: $(INSTALLED)
	$(BIN)/fastslow scores

leaderboard: $(INSTALLED)
	$(BIN)/fastslow leaderboard

notebooks: $(EXTRAS)
	$(BIN)/fastslow kernels build $(NOTEBOOK)

kernels-package: $(INSTALLED)
	$(BIN)/fastslow kernels package $(call on,DIRTY,--allow-dirty)

kernels-push: $(INSTALLED)
	$(BIN)/fastslow kernels push "$(NOTEBOOK)" $(PUSH)

kernels-status: $(INSTALLED)
	$(BIN)/fastslow kernels status

kernels-pull: $(INSTALLED)
	$(BIN)/fastslow kernels pull "$(NOTEBOOK)" $(call on,REPLACE,--replace)

kernels-share: $(INSTALLED)
	$(BIN)/fastslow kernels share "$(BUNDLE)" $(call given,AS,--name)

# A worker a core: with two a core the same tests take 1.4 times as long and 1.7 times the processor
# time, as each worker prepares for itself. A worker and the processes that it starts take 2 GB.
PROCESSES = $(shell $(BIN)/python -c "import os, psutil; \
	print(max(1, min(os.cpu_count() or 1, psutil.virtual_memory().total >> 31)))")

# Lint runs beside the tests, which wait much; what it says stands below what they say.
test: $(EXTRAS)
	@mkdir -p build
	@$(MAKE) --jobs=2 --keep-going --no-print-directory pytest silent-lint; \
	ended=$$?; cat build/lint.txt; exit $$ended

# What pytest makes of the tests to explain failures is kept, also where Python is told to write no
# bytecode: to make it anew takes each process seven seconds.
pytest: $(EXTRAS)
	PYTHONDONTWRITEBYTECODE= $(BIN)/pytest --numprocesses $(PROCESSES) --dist loadgroup --no-loadscope-reorder

test-slow: $(EXTRAS)
	$(BIN)/pytest -m slow

# Who runs out of tests takes some of the other's, for a few of them take minutes.
attack: $(EXTRAS)
	$(BIN)/pytest tests/attacks -m "slow or not slow" --numprocesses 2 --dist worksteal

silent-lint: $(EXTRAS)
	@$(MAKE) --no-print-directory lint > build/lint.txt 2>&1

lint: $(EXTRAS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

site: $(EXTRAS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "build/site/index.html: the documentation, to be opened in a browser"

# What a clone has not; docs/measured-programs.md says how to get it.
measured:
	@test -d "$(SHARED)/cpugraphs" || { echo "$(SHARED)/cpugraphs: there is no such folder. All measured" \
	  "programs are not part of a clone: docs/measured-programs.md says how to get them, or to collect" \
	  "others. Then SHARED=the folder above them." >&2; exit 2; }

bench-tile: measured $(INSTALLED)
	$(BIN)/python -m benchmarks.tile_models "$(SHARED)" build/benchmarks

bench-lightgbm: measured $(INSTALLED)
	$(BIN)/python -m benchmarks.lightgbm_models "$(SHARED)" build/benchmarks

bench-study: measured $(INSTALLED)
	$(BIN)/python -m benchmarks.lightgbm_study "$(SHARED)" build/benchmarks

bench-rank: $(INSTALLED)
	$(BIN)/python -m benchmarks.rank_latency $(if $(RUN),"$(RUN)") --distilled solution/serving/default.zip $(TPU)

# RUN is a run on the same data: what leads a search has not seen the program.
bench-choose: measured $(INSTALLED)
	$(BIN)/python -m benchmarks.choosing "$(RUN)" "$(SHARED)/cpugraphs" build/choosing $(TPU) $(if $(wildcard $(OUT)/npz/tile),--products "$(OUT)")

bench-choose-real: $(EXTRAS)
	$(BIN)/python -m benchmarks.choosing_real build/choosing-real

go: $(INSTALLED)
	$(BIN)/python -m benchmarks.go build/go

rehearsal: $(INSTALLED)
	$(BIN)/python -m benchmarks.rehearsal build/rehearsal --share $(SHARE) --kills $(KILLS)

bench-gpu: $(INSTALLED)
	$(BIN)/python -m benchmarks.devices

# What `fastslow rank` ranks with where it is told nothing else; equal bytes on one machine. Of the
# collected programs those with layouts: products of matrices teach nothing about other kernels.
default-bundle: $(INSTALLED)
	rm -rf build/default-data
	mkdir -p build/default-data
	cp -r solution/data/sample/npz build/default-data/npz
	cp -r solution/data/collected/npz/layout build/default-data/npz/
	$(BIN)/fastslow run build/default-data --recipe best --scheme family --run build/default --store build/default-store
	$(BIN)/fastslow pack build/default --distill --data build/default-store --out solution/serving/default.zip

collect-sample: $(EXTRAS)
	$(BIN)/python -m benchmarks.collected_sample "$(OUT)" --hours $(HOURS) --avoid "$(SHARED)/cpugraphs"

fresh-set: measured $(EXTRAS)
	$(BIN)/python -m benchmarks.collected_sample "$(OUT)" --fresh "$(RELEASE)" --hours $(HOURS) --avoid "$(SHARED)/cpugraphs"

release-data: measured $(INSTALLED)
	$(BIN)/python -m benchmarks.release "$(SHARED)/cpugraphs" --readme docs/measured-programs.md --out build/cpugraphs.zip

bench-cluster: $(EXTRAS)
	for what in overhead speed units kills; do $(BIN)/python -m benchmarks.cluster $$what; done

papers: measured $(INSTALLED)
	$(BIN)/python -m benchmarks.papers "$(SHARED)/cpugraphs"

papers-patient: measured $(INSTALLED)
	$(BIN)/python -m benchmarks.paper_needs "$(SHARED)/cpugraphs" --report .

ablations: measured $(INSTALLED)
	$(BIN)/python -m benchmarks.ablations "$(SHARED)/cpugraphs" --report .

bench-layout: measured $(INSTALLED)
	$(BIN)/python -m benchmarks.layout_nets "$(SHARED)/cpugraphs" $(TPU) --out build/layout-nets

clean:
	rm -rf $(VENV) runs stores build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

# The pip that comes with Python 3.11 takes twice as long. Bytecode is made by all cores, where pip
# takes one; without the libraries' own tests and what is hardly ever imported, a quarter of it; of
# our code as well, which starts much slower without where Python is told to write none. Some
# libraries bring files of other Pythons.
UNUSED = "/tests?/|/torch/(_inductor|testing)/|/pygments/lexers/|-packages/(debugpy|fontTools|pip|setuptools)/"
$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(INSTALL) ".[dev]"
	@$(BIN)/python -m compileall -qq -j 0 -x $(UNUSED) $(VENV)/lib solution ensembles submissions || true
	touch $@

# Of these only a part is ever imported, and compiled then. The TPU's compiler is for one system.
COMMA := ,
TPU_EXTRA = $(if $(filter Linux-x86_64,$(shell uname -s)-$(shell uname -m)),$(COMMA)tpu)
$(EXTRAS): $(INSTALLED)
	$(INSTALL) ".[dev,cluster-test,collect,onnx,placement$(TPU_EXTRA)]"
	touch $@
