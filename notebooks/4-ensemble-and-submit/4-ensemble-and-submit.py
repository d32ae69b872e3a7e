# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 4. Ensemble and submit
#
# Puts the models of the training notebooks together, merges their predictions by a recipe, and
# writes `submission.csv` and `bundle.zip`, the recipe's models as one file. Nothing is trained here
# and no data is read: the outputs of the other notebooks are enough. Upload the CSV with the
# notebook's *Submit* button, or bring both home with `make kernels-pull`: `make submit` sends the
# one, `fastslow rank FILE --with runs/4-ensemble-and-submit/bundle.zip` ranks with the other.

# %% tags=["parameters"]
RECIPE = ""  # a name; empty: the one that `make submit` takes
SOURCES = "2-*,3-*"  # the notebooks whose runs are put together
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
import shutil

from ensembles import DEFAULT_RECIPE
from ensembles.recipe import find_recipe
from ensembles.tables import show_comparison
from solution import load_bundle
from solution.serving.packing import pack
from solution.sessions.earlier_runs import join_runs
from solution.sessions.session import Session
from solution.system.terminal import output, say
from submissions.build import build_submission
from submissions.page.build import write_page
from submissions.report import tabulate

# %% [markdown]
# ## The runs
# They must be of one commit, on the same data with the same folds, and complete.

# %%
session = Session.begin("4-ensemble-and-submit", PUSH)
recipe = find_recipe(RECIPE or DEFAULT_RECIPE)
sources = session.find_runs(SOURCES)
for source in sources:
    say(f"{source.folder.parent.name}: {', '.join(source.experiments())}")
with join_runs(sources, session.run, replace=True) as run:
    built = build_submission(run, recipe)
    page = write_page(run, recipe, session.output / "report.html")
    bundle = pack(run, recipe, session.output / "bundle.zip")

# %% [markdown]
# ## What the ensemble reaches
# Out of fold, with 95% bootstrap intervals over graphs; then member by member, what it adds.

# %%
output.print(tabulate(built.scores))

# %%
for member in recipe.names():
    if run.predictions(member, "out_of_fold").is_file():
        said, table = show_comparison(run, recipe.name, member)
        say(said)
        output.print(table)

# %% [markdown]
# ## The bundle
# Attached to another notebook as its output or as a dataset, it ranks there, with nothing trained:
# `load_bundle("/kaggle/input/.../bundle.zip").rank("program.npz")`.

# %%
say(load_bundle(bundle).describe())

# %% [markdown]
# ## The submission

# %%
shutil.copyfile(run.submission, session.output / "submission.csv")
say(built.written.describe())
say(f"Report: {page}")
session.finish()
