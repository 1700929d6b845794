# Sourced by the scripts beside it. Makes .venv once and puts it first on PATH.
#
# The torch that $PYTHON (default: python3) can import is the one that is measured. It is used
# from its own place and never replaced. If there is none, the pinned one is installed, in a build
# that the machine's GPUs and their driver can run, or in the build for CPUs:
# ddp_perf/system/gpu/torch_builds.py. If nothing has changed since the last time, no network is
# needed.
#
# Several jobs of one checkout may use .venv at a time, but none changes it while another one uses
# it: each has a lock on .venv.lock until it ends, also the program that replaces its shell.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

ddp_setup() {
    # An activated .venv is what set-up makes, and not the Python to make it of.
    local PATH=${PATH//"$root/.venv/bin:"/}
    local python=${PYTHON:-python3} stamp=.venv/.ready wanted
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || {
        echo "setup: $python is not Python 3.10 or later; name one: PYTHON=python3.12 $0" >&2
        return 1
    }
    # Check this first: installing takes minutes, and would be of no use here.
    PYTHONPATH=$root:${PYTHONPATH-} "$python" -c '
import sys
from ddp_perf.system.host.launch_platform import LAUNCH_REMEDY, launch_obstacle
obstacle = launch_obstacle()
sys.exit(obstacle and f"setup: {obstacle}; {LAUNCH_REMEDY} (pip install . installs them)")' || return
    wanted=$("$python" -VV; command -v "$python"; cat ci/requirements.{txt,lock} pyproject.toml | cksum)
    exec 9>&- # of a shell that sourced this file
    if { exec 9<>.venv.lock; } 2>/dev/null; then # else nobody here changes .venv
        ddp_lock -s
    fi
    [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && return 0
    [ -w .venv.lock ] || {
        echo "setup: .venv is not made for $python, and $root/.venv.lock cannot be written;" \
            "work in a copy of this checkout" >&2
        return 1
    }
    ddp_lock -x
    [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] || ddp_make_environment "$python"
    ddp_lock -s
}

# Waits for a shared lock (-s, to use .venv) or the only one (-x, to change it).
ddp_lock() {
    local code=0
    flock -n "$1" 9 2>/dev/null || code=$?
    [ "$code" = 1 ] || return 0 # locked; or a disk that has no locks
    echo "setup: another job of this checkout makes or uses .venv; waiting until it ends" >&2
    flock "$1" 9
}

# Makes .venv for $1, or brings it up to date.
ddp_make_environment() {
    rm -f "$stamp" # an environment that is half changed is none
    echo "setup: making .venv once; it downloads 180 MB, and torch if $1 has none" >&2
    "$1" -m venv .venv
    local site pip=(.venv/bin/python -m pip install --disable-pip-version-check)
    [ -t 2 ] || pip+=(--quiet) # progress is for people
    site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    "${pip[@]}" --no-deps --require-hashes -r ci/requirements.lock >&2
    if ddp_torch_directory "$1" >"$site/torch-under-test.pth"; then
        echo "setup: torch of $1 is what is tested" >&2
    else
        rm -f "$site/torch-under-test.pth"
        ddp_install_torch "${pip[@]}" -c ci/requirements.txt >&2
    fi
    "${pip[@]}" --no-deps --no-build-isolation -e . >&2
    echo "$wanted" >"$stamp"
}

# Installs torch by the command "$@", from PyPI or an index of PyTorch's beside it. Where that
# cannot be reached, PyPI's build still runs the CPU tier, and doctor reports what keeps it from GPUs.
ddp_install_torch() {
    local choice mismatch size wanted larger default
    choice=$(.venv/bin/python -c '
from ddp_perf.system.gpu.nvml import NvmlReader
from ddp_perf.system.gpu.torch_builds import DEFAULT_BUILD, torch_build
machine = NvmlReader().machine()
print("" if DEFAULT_BUILD.runs_on(machine) else ", which the GPUs of this machine cannot run")
for build in (torch_build(machine) or DEFAULT_BUILD, DEFAULT_BUILD):
    print(build.download)
    print(*build.pip_arguments)')
    { read -r mismatch; read -r size; read -ra wanted; read -r larger; read -ra default; } <<<"$choice"
    echo "setup: no torch found, installing ${wanted[0]}; it downloads $size" >&2
    "$@" "${wanted[@]}" && return
    [ "${wanted[*]}" != "${default[*]}" ] || return 1
    echo "setup: ${wanted[0]} cannot be installed from ${wanted[2]};" \
        "installing ${default[0]}$mismatch; it downloads $larger" >&2
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
