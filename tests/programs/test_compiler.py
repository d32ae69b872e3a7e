"""Which versions of jax are taken."""

import pytest

from solution.programs import compiler
from solution.system.errors import InputError


@pytest.mark.parametrize("found", ["0.9.0", "0.10rc1", "0.12.1", "1"])
def test_a_new_jax_is_taken(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "version", lambda _: found)
    assert compiler.check_installed() == found


@pytest.mark.parametrize("found", ["0.8.3", "0.4"])
def test_an_old_jax_is_refused(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "version", lambda _: found)
    with pytest.raises(InputError, match=f"jax {found} is older than 0.9"):
        compiler.check_installed()
