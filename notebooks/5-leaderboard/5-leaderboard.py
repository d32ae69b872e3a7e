# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 5. Leaderboard
#
# What was submitted, what Kaggle made of it, and how well the out-of-fold score foretells that. The
# ledger is the one that was pushed; where there are credentials and a network, it is brought up to
# date first, and left among the outputs.

# %% tags=["parameters"]
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
import shutil

from solution.sessions.session import Session
from solution.system.errors import InputError
from solution.system.terminal import output, say
from submissions.calls import read_wait_settings
from submissions.credentials import find_credentials
from submissions.kaggle import Kaggle
from submissions.ledger import Tracker
from submissions.scores import (
    best_public,
    describe_correlation,
    draw_history,
    read_anchors,
    tabulate_leaderboard,
    tabulate_ledger,
    tabulate_standing,
    update_ledger,
)

# %matplotlib inline

# %%
session = Session.begin("5-leaderboard", PUSH)
pushed = read_wait_settings()
shutil.copyfile(pushed.submissions / "ledger.csv", session.output / "ledger.csv")
kaggle = Kaggle(pushed.model_copy(update={"submissions": session.output}))
tracker = Tracker(kaggle)
places = []
if find_credentials():
    try:
        update_ledger(tracker)
        places = kaggle.list_leaderboard()
    except InputError as error:
        say(f"The ledger stays as it was. {error}")
else:
    say("There are no credentials here, so the ledger stays as it was.")
ledger = tracker.read()

# %% [markdown]
# ## Submissions

# %%
output.print(tabulate_ledger(ledger))
say(describe_correlation(ledger))

# %%
if ledger.lines:
    draw_history(ledger, read_anchors())
else:
    say("No submission was made yet: `make submit` makes the first.")

# %% [markdown]
# ## Where our best one stands
# Among results that their authors made public, and on the public leaderboard where it could be
# fetched.

# %%
output.print(tabulate_standing(ledger))
if places:
    output.print(tabulate_leaderboard(places, best_public(ledger)))
session.finish()
