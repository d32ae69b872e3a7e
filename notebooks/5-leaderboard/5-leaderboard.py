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
# The submissions, their scores at Kaggle, and how well the out-of-fold score predicts these. The
# ledger is the pushed one; with credentials and a network it is updated first, and saved in the
# outputs.

# %% tags=["parameters"]
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
board = []
if find_credentials():
    try:
        update_ledger(tracker)
        board = kaggle.list_leaderboard()
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
# ## Our best submission
# Among results that their authors published, and on the public leaderboard if it could be fetched.

# %%
output.print(tabulate_standing(ledger))
if board:
    output.print(tabulate_leaderboard(board, best_public(ledger)))
session.finish()
