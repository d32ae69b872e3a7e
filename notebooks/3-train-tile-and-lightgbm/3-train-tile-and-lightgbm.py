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
# The tile models, and LightGBM where the recipe has it: a few hours of CPU on the full data.
#
# Every model is saved as soon as it is trained. If the session ends earlier, by `HOURS`, a signal
# or a kill, the next session continues: attach the output of this notebook to it as an input
# (`RESUME=1` of `make kernels-push`). Sessions may share the work: give each different
# `COLLECTIONS` or `FOLDS`.

# %% tags=["parameters"]
RECIPE = ""  # a name: its members are trained; empty: "best", with LIMIT "z_score_001"
EXPERIMENTS = "*,!layout_*,*lightgbm*"  # patterns of its members; the last match decides
COLLECTIONS = "*"  # such as "layout:xla:*"
FOLDS = ""  # such as "0,1"; empty: all
NUM_FOLDS = 5
SCHEME = "architecture"  # graphs that stay in one fold; or "family", or "graph"
HOURS = 11.5  # a kernel is killed after 12
PACK = "folds"  # models in bundle.zip: of all folds; "refit": trained on all graphs; "": none
LIMIT = False  # a smoke run on few graphs
REPLACE = False  # delete an existing run and start afresh
PUSH = ""  # key of the push; a push sets it and the commit
COMMIT = ""

# %% [markdown]
# On Kaggle the project is installed from the attached dataset of wheels.

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
from submissions.build import collect_scores, tabulate

# %% [markdown]
# ## Training
# One model for each experiment, group of collections, fold and seed. It predicts the graphs of the
# held-out fold and the test graphs.

# %%
session = Session.begin("3-train-tile-and-lightgbm", PUSH)
trained = train_session(
    session,
    Share(EXPERIMENTS, COLLECTIONS, FOLDS, HOURS, PACK, RECIPE),
    scheme=SCHEME,
    num_folds=NUM_FOLDS,
    limit=LIMIT,
    replace=REPLACE,
)

# %% [markdown]
# ## Training data of the models

# %%
output.print(show_summaries(predictions.read(trained.run.graphs)))

# %% [markdown]
# ## Scores
# Out of fold: every graph is predicted by a model that has seen no program of its structure.

# %%
output.print(tabulate(collect_scores(trained.run)))

# %% [markdown]
# ## The bundle
# The models as one file, if all are trained. `make kernels-pull` downloads it; rank with it by
# `fastslow rank FILE --with bundle.zip`.

# %%
if trained.bundle:
    say(load_bundle(trained.bundle).describe())
session.finish(trained.missing)
