# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 2. Train the layout models
#
# The graph nets of the four layout collections, on a GPU where there is one; on two, two at once.
#
# Every model is kept as soon as it is trained. Where the session ends first, by `HOURS`, a signal
# or a kill, the next one goes on: attach the output of this notebook to it as an input (`RESUME=1`
# of `make kernels-push`). Sessions may share the work: give each its own `FOLDS`, or whole
# sources as `COLLECTIONS`: one net learns from both searches.

# %% tags=["parameters"]
EXPERIMENTS = "layout_*,!*lightgbm*"  # patterns; the last that fits a name decides
COLLECTIONS = "*"  # such as "layout:xla:*"
FOLDS = ""  # such as "0,1"; empty: all
NUM_FOLDS = 5
SCHEME = "architecture"  # what stays together in a fold, or "graph"
HOURS = 11.5  # a kernel is killed after 12
LIMIT = False  # a quick look at a few graphs
REPLACE = False  # start afresh where there is a run already
PUSH = ""  # the key of the push, and the commit that was pushed; a push writes both
COMMIT = ""

# %% [markdown]
# On Kaggle the project comes from the attached dataset of wheels; elsewhere it is there already.

# %%
import os
import runpy
from glob import glob

inputs = os.environ.get("FASTSLOW_INPUT", "/kaggle/input")
for script in glob(f"{inputs}/**/fastslow_install.py", recursive=True)[:1]:
    runpy.run_path(script, init_globals={"COMMIT": COMMIT}, run_name="__main__")

# %%
from ensembles import DEFAULT_RECIPE
from solution.analysis.graph_tables import show_summaries
from solution.experiments import DEFAULTS
from solution.experiments.base import find_experiment
from solution.runs.record import open_run
from solution.sessions.earlier_runs import adopt, describe_missing, gather_complete, match, select
from solution.sessions.session import Kernel
from solution.system.terminal import output, say
from solution.training.jobs import list_missing
from solution.training.opening import describe_run, open_store, save_plan, warn_about_gaps
from solution.training.out_of_fold import run_experiments
from solution.training.plan import make_plan
from submissions.report import collect_scores, tabulate

# %% [markdown]
# ## The data
# It is prepared once for all experiments, so that the runs of all notebooks fit together.

# %%
kernel = Kernel.begin("2-train-layout", PUSH)
everything = [find_experiment(name) for name in DEFAULTS]
place = kernel.store(limit=LIMIT)
store = open_store(kernel.find_data(), place, everything, limit=LIMIT, rebuild=True, workers=None)
plan = make_plan(store, SCHEME, NUM_FOLDS, limit=LIMIT)
warn_about_gaps(plan)
output.print(show_summaries(plan.graphs))

# %% [markdown]
# ## Training
# A model for each experiment, collection, fold and seed; one model for collections that are learned
# together. It predicts the graphs of the fold that it has not seen, and the test graphs.

# %%
experiments = [find_experiment(name) for name in match(DEFAULTS, EXPERIMENTS)]
chosen = select(plan, COLLECTIONS, FOLDS)
settings = describe_run(experiments, plan, SCHEME, NUM_FOLDS)
with open_run(kernel.run, settings, replace=REPLACE) as run:
    save_plan(plan, run)
    say(f"Models from earlier sessions: {adopt(run, kernel.find_runs())}")
    with kernel.time_limit(HOURS):
        run_experiments(experiments, chosen, run)
    gather_complete(experiments, plan, run)
missing = list_missing(experiments, chosen, run)

# %% [markdown]
# ## What they reach
# Out of fold: every graph is predicted by a model that has seen no program of its structure.

# %%
output.print(tabulate(collect_scores(run, DEFAULT_RECIPE)))
kernel.finish(describe_missing(missing))
