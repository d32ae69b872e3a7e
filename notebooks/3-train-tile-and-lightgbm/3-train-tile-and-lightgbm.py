# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 3. Train the tile models and LightGBM
#
# Everything but the graph nets of layouts: a few hours of CPU on the full data.
#
# Every model is kept as soon as it is trained. Where the session ends first, by `HOURS`, a signal
# or a kill, the next one goes on: attach the output of this notebook to it as an input (`RESUME=1`
# of `make kernels-push`). Sessions may share the work: give each its own `COLLECTIONS` or `FOLDS`.

# %% tags=["parameters"]
EXPERIMENTS = "*,!layout_*,*lightgbm*"  # patterns; the last that fits a name decides
COLLECTIONS = "*"  # such as "layout:xla:*"
FOLDS = ""  # such as "0,1"; empty: all
NUM_FOLDS = 5
SCHEME = "architecture"  # what stays together in a fold; or "family", or "graph"
HOURS = 11.5  # a kernel is killed after 12
PACK = "folds"  # the models of all folds become bundle.zip; "refit": others, of all graphs; or ""
LIMIT = False  # a quick look at a few graphs
REPLACE = False  # start afresh where there is a run already
EXECUTOR = "local"  # or "ray": the nodes of a cluster
ADDRESS = ""  # of the cluster: "auto" where this machine is part of it; empty: one of its own
PUSH = ""  # the key of the push, and the commit that was pushed; a push writes both
COMMIT = ""

# %% [markdown]
# On Kaggle the project comes from the attached dataset of wheels; elsewhere it is there already.

# %%
import os
import runpy
from glob import glob

inputs = os.environ.get("FASTSLOW_INPUT") or "/kaggle/input"
for script in glob(f"{inputs}/**/fastslow_install.py", recursive=True)[:1]:
    runpy.run_path(script, init_globals={"COMMIT": COMMIT}, run_name="__main__")

# %%
from solution import load_bundle
from solution.analysis.graph_tables import show_summaries
from solution.domain import predictions
from solution.sessions.session import Session
from solution.sessions.train_session import Share, train_session
from solution.system.terminal import output, say
from submissions.report import collect_scores, tabulate

# %% [markdown]
# ## Training
# A model for each experiment, group of collections, fold and seed. It predicts the graphs of the
# fold that it has not seen, and the test graphs.

# %%
session = Session.begin("3-train-tile-and-lightgbm", PUSH)
trained = train_session(
    session,
    Share(EXPERIMENTS, COLLECTIONS, FOLDS, HOURS, PACK),
    scheme=SCHEME,
    num_folds=NUM_FOLDS,
    limit=LIMIT,
    replace=REPLACE,
    executor=EXECUTOR,
    address=ADDRESS or None,
)

# %% [markdown]
# ## What they learned from

# %%
output.print(show_summaries(predictions.read(trained.run.graphs)))

# %% [markdown]
# ## What they reach
# Out of fold: every graph is predicted by a model that has seen no program of its structure.

# %%
output.print(tabulate(collect_scores(trained.run)))

# %% [markdown]
# ## The bundle
# The models as one file, where all are there. `make kernels-pull` brings it home, and `fastslow
# rank FILE --with` it ranks there.

# %%
if trained.bundle:
    say(load_bundle(trained.bundle).describe())
session.finish(trained.missing)
