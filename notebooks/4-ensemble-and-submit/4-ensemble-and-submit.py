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
# Combines the models of the training notebooks, merges their predictions by a recipe, and writes
# `submission.csv` and `bundle.zip`, the recipe's models as one file. It trains nothing and reads no
# data, only the outputs of the other notebooks. Upload the CSV with the notebook's *Submit* button,
# or download both with `make kernels-pull`: `make submit` sends the CSV, and
# `fastslow rank FILE --with runs/4-ensemble-and-submit/bundle.zip` ranks with the bundle.
#
# With an attached bundle (`BUNDLE=name` of `make kernels-push`), no run is needed: its models
# predict the test split of the attached data.

# %% tags=["parameters"]
RECIPE = ""  # a name; empty: the one that merges most of what was trained
SOURCES = "2-*,3-*"  # the notebooks whose runs are combined
BUNDLE = ""  # folder of an attached bundle; empty: the only attached one, if any
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
import shutil

from ensembles.recipe import choose_before_training, describe_choice
from ensembles.tables import show_comparison
from solution import load_bundle
from solution.serving.packing import pack
from solution.serving.predicting import predict_test_split
from solution.sessions.earlier_runs import join_runs
from solution.sessions.session import Session
from solution.system.terminal import output, say
from submissions.build import build_submission, tabulate
from submissions.page.build import write_page
from submissions.writer import write_submission

session = Session.begin("4-ensemble-and-submit", PUSH)
csv = session.output / "submission.csv"
bundle = session.find_bundle(BUNDLE)

# %% [markdown]
# ## With a bundle
# The models of the bundle rank every test graph.

# %%
if bundle:
    predicted = predict_test_split(bundle, session.find_data())
    sample = predicted.sample_submission
    say(write_submission(predicted.ranking, predicted.graphs, sample, csv).describe())

# %% [markdown]
# ## Without one: the runs
# They must be complete, of one commit, and on the same data with the same folds. The table shows
# the ensemble's out-of-fold score with 95% intervals over programs; then the gain of each member.

# %%
if not bundle:
    sources = session.find_runs(SOURCES)
    for source in sources:
        say(f"{source.folder.parent.name}: {', '.join(source.experiments())}")
    with join_runs(sources, session.run, replace=True) as run:
        trained = run.experiments()
        recipe = choose_before_training(run.folder, RECIPE or None, trained, afresh=True)
        if told := describe_choice(recipe, trained):
            say(told)
        built = build_submission(run, recipe)
        page = write_page(run, recipe, session.output / "report.html")
        bundle = pack(run, recipe, session.output / "bundle.zip")
    shutil.copyfile(run.submission, csv)
    output.print(tabulate(built.scores))
    for member in recipe.names():
        if run.predictions(member, "out_of_fold").is_file():
            said, table = show_comparison(run, recipe.name, member)
            say(said)
            output.print(table)
    say(built.written.describe())
    say(f"Report: {page}")

# %% [markdown]
# ## The bundle
# Share it as a dataset (`make kernels-share BUNDLE=file`) and attach it to a notebook to rank there
# without training: `load_bundle("/kaggle/input/.../bundle.zip").rank("program.npz")`.

# %%
say(load_bundle(bundle).describe())
session.finish()
