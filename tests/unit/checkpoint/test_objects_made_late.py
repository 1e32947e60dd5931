"""An optimizer is restored after it was built: before that its state would be lost."""

import numpy as np
import pytest

import mpistrat
from mpistrat import Variable
from mpistrat.errors import UsageError
from mpistrat.train import Checkpoint


@pytest.mark.parametrize("kind", [mpistrat.optimizers.SGD, mpistrat.optimizers.Adam])
def test_an_optimizer_that_has_no_slots_yet_is_refused_before_anything_changes(tmp_path, kind):
    w, optimizer = Variable(np.zeros(3)), kind(0.5)
    optimizer.apply_gradients([(np.ones(3), w)])
    path = Checkpoint(w=w, opt=[{"a": optimizer}]).save(tmp_path / "c")
    value = w.numpy().copy()
    other, new = Variable(np.full(3, 9.0)), kind(0.5)
    again = Checkpoint(w=other, opt=[{"a": new}])
    words = r"'opt/0/a' cannot be restored yet: this \w+ keeps nothing.*build\(variables\)"
    with pytest.raises(UsageError, match=words):
        again.restore(path)
    assert (other.numpy() == 9.0).all()
    new.build([other])
    again.restore(path).assert_consumed()
    assert (new.iterations, other.numpy().tolist()) == (1, value.tolist())


def test_an_optimizer_that_was_saved_without_slots_may_be_restored_so(tmp_path):
    path = Checkpoint(w=Variable(1.0), opt=mpistrat.optimizers.Adam(0.5)).save(tmp_path / "c")
    again = Checkpoint(w=Variable(0.0), opt=mpistrat.optimizers.Adam(0.5))
    again.restore(path).assert_consumed()


def test_an_object_that_is_made_late_is_refused_on_every_way_to_it(tmp_path):
    w, optimizer = Variable(np.zeros(3)), mpistrat.optimizers.Adam(0.5)
    optimizer.apply_gradients([(np.ones(3), w)])
    roots = Checkpoint(optimizer).write(tmp_path / "root")
    with pytest.raises(UsageError, match="the root cannot be restored yet"):
        Checkpoint(mpistrat.optimizers.Adam(0.5)).read(roots)
    one = Checkpoint(w=w, b=optimizer, d={"": optimizer}).write(tmp_path / "one")
    new = mpistrat.optimizers.Adam(0.5)
    for again in (Checkpoint(w=w, a=new, b=new), Checkpoint(w=w, d={"": new})):
        with pytest.raises(UsageError, match="cannot be restored yet"):
            again.read(one)


def test_what_an_optimizer_has_besides_its_slots_is_restored_without_them(tmp_path):
    class Halving(mpistrat.optimizers.SGD):
        def __init__(self):
            super().__init__(0.5)
            self.start = Variable(3.0)

    path = Checkpoint(o=Halving()).write(tmp_path / "c")
    again = Checkpoint(o=Halving())
    again.o.start.assign(0.0)
    again.read(path).assert_consumed()
    assert float(again.o.start) == 3.0
