# Sourced by the scripts beside it. Makes .venv once and puts it first on PATH.
#
# The torch that $PYTHON (default: python3) can import is the one that is measured. It is used
# from its own place and never replaced. If there is none, the pinned one is installed, in a build
# that the machine's GPUs and their driver can run: ddp_perf/system/gpu/torch_builds.py.
# If nothing has changed since the last time, no network is needed.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

ddp_setup() {
    local python=${PYTHON:-python3} stamp=.venv/.ready wanted
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || {
        echo "setup: $python is not Python 3.10 or later; name one: PYTHON=python3.12 $0" >&2
        return 1
    }
    # Check this first: installing takes a minute, and would be of no use here.
    PYTHONPATH=$root:${PYTHONPATH-} "$python" -c '
import sys
from ddp_perf.system.host.launch_platform import LAUNCH_REMEDY, launch_obstacle
obstacle = launch_obstacle()
sys.exit(obstacle and f"setup: {obstacle}; {LAUNCH_REMEDY} (pip install . installs them)")' || return
    wanted=$("$python" -VV; command -v "$python"; cat ci/requirements.txt pyproject.toml | cksum)
    [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && return 0

    echo "setup: making .venv (once; a minute or two)" >&2
    "$python" -m venv .venv
    local site
    site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    local pip=(.venv/bin/python -m pip install --quiet --disable-pip-version-check)
    "${pip[@]}" --no-deps -r ci/requirements.txt
    if ddp_torch_directory "$python" >"$site/torch-under-test.pth"; then
        echo "setup: torch of $python is what is tested" >&2
    else
        rm -f "$site/torch-under-test.pth"
        ddp_install_torch "${pip[@]}" -c ci/requirements.txt
    fi
    "${pip[@]}" --no-deps --no-build-isolation -e .
    echo "$wanted" >"$stamp"
}

# Installs torch by the command "$@", from PyPI or an index of PyTorch's beside it. Where that
# cannot be reached, PyPI's build still runs the CPU tier, and doctor reports what keeps it from GPUs.
ddp_install_torch() {
    local choice wanted default
    choice=$(.venv/bin/python -c '
from ddp_perf.system.gpu.nvml import NvmlReader
from ddp_perf.system.gpu.torch_builds import DEFAULT_BUILD, torch_build
print(*(torch_build(NvmlReader().machine()) or DEFAULT_BUILD).pip_arguments)
print(*DEFAULT_BUILD.pip_arguments)')
    { read -ra wanted; read -ra default; } <<<"$choice"
    echo "setup: no torch found, installing ${wanted[0]}" >&2
    "$@" "${wanted[@]}" && return
    [ "${wanted[*]}" != "${default[*]}" ] || return 1
    echo "setup: ${wanted[0]} cannot be installed from ${wanted[2]};" \
        "installing ${default[0]}, which this machine's GPUs cannot run" >&2
    "$@" "${default[@]}"
}

# The directory that $1 imports torch from; fails when it has none.
ddp_torch_directory() {
    "$1" -c '
import importlib.util, pathlib, sys
spec = importlib.util.find_spec("torch")
if spec is None or spec.origin is None:
    sys.exit(1)
print(pathlib.Path(spec.origin).parents[1])'
}

ddp_setup
export PATH="$root/.venv/bin:$PATH"
