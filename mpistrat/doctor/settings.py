"""The environment variables that change how programs run; no other one is ever shown or sent."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

__all__ = ["shown", "watched"]

_PREFIXES = (
    *("OMP_", "OPENBLAS_", "MKL_", "KMP_", "GOMP_", "BLIS_", "NUMEXPR_"),
    *("NCCL_", "RCCL_", "FI_", "UCX_", "OMPI_MCA_", "MPICH_", "MPIR_CVAR_", "I_MPI_", "MV2_"),
    *("CUDA_", "HSA_", "MIOPEN_", "CCL_", "GLOO_", "HOROVOD_", "MPI4PY_"),
    *("TF_", "XLA_", "KERAS_", "JAX_", "MPISTRAT_", "PYTHON"),
)
_NAMES = ("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "VIRTUAL_ENV", "CONDA_PREFIX")
# These differ between ranks by right.
_OF_A_RANK = ("CUDA_VISIBLE_DEVICES", "MPISTRAT_RANK_PROCESS", "OMPI_MCA_ess", "OMPI_MCA_orte")
_OF_A_RANK_TOO = ("TF_CONFIG", "NCCL_COMM_ID", "FI_CXI_DEVICE", "MPICH_OFI_NIC")
_SECRETS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "API_KEY", "PRIVATE")
_LONGEST = 120
_DIGEST = "sha256:"


def watched(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the variables to compare; of one that may hold a secret only a digest."""
    for name, value in sorted(environment.items()):
        is_own = name.startswith((*_OF_A_RANK, *_OF_A_RANK_TOO))
        if not is_own and (name in _NAMES or name.startswith(_PREFIXES)):
            yield name, _digest(value) if _may_be_secret(name, value) else value


def shown(name: str, value: str) -> str:
    """Return how a variable's value is reported."""
    if not value:
        return "not set"
    if _may_be_secret(name, value) or value.startswith(_DIGEST):
        return "another value (not shown)"
    value = value if value.isprintable() else ascii(value)
    return value if len(value) <= _LONGEST else value[:_LONGEST] + "..."


def _may_be_secret(name: str, value: str) -> bool:
    has_login = "://" in value and "@" in value
    return has_login or any(word in name.upper() for word in _SECRETS)


def _digest(value: str) -> str:
    return _DIGEST + hashlib.sha256(value.encode(errors="replace")).hexdigest()[:12]
