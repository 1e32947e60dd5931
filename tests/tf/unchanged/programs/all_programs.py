"""Run the programs beside this one, each in a folder of its own, in one process: print results.

Importing TensorFlow takes longer than any of them. Those with parameter servers end their process,
so they are not among them. With ``--alone`` TensorFlow's own strategies run them in one process.
"""

import json
import os
import runpy
import sys
from pathlib import Path

programs = sys.argv[1:]
if programs[0] == "--alone":
    import tensorflow as tf

    programs.pop(0)
    # TensorFlow lets a process make one only, and waits for all workers of TF_CONFIG.
    os.environ.pop("TF_CONFIG", None)
    one = tf.distribute.MultiWorkerMirroredStrategy()
    theirs = tf.distribute.MultiWorkerMirroredStrategy
    theirs.__new__, theirs.__init__ = lambda *_, **__: one, lambda *_, **__: None
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": ["localhost:1"]}})
for program in programs:
    home = Path.cwd()
    os.makedirs(program, exist_ok=True)
    os.chdir(program)
    found = runpy.run_path(str(Path(__file__).with_name(f"{program}.py")), run_name="__main__")
    os.chdir(home)
    shown = {name: found[name] for name in ("RESULTS", "ROLES") if name in found}
    # One write: what other ranks print comes between two.
    sys.stdout.write(f"\nFOUND {json.dumps({program: shown})}\n")
    sys.stdout.flush()
