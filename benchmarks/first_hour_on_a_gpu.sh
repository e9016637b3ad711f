#!/usr/bin/env bash
# The first hour on a GPU: the tests marked for one, the benchmarks, and a dated table of both.
#
#     benchmarks/first_hour_on_a_gpu.sh [FOLDER] [-- options of gpu_stacks.py]
#
# FOLDER gets the logs and `table.md`; by default gpu-<date>. Nothing ends early: what fails is a
# row of the table, and the script then ends with 1. NANOGPT=PATH, an unmodified checkout, is
# compared with. Where there is no GPU it says so in one line, and ends with 2.
set -uo pipefail
cd "$(dirname "$0")/.."
python="${PYTHON:-python}"

about=$("$python" - <<'EOF'
import sys

try:
    import torch
except ImportError:
    sys.exit("PyTorch is not installed here; pip install '.[test]'")
if not torch.cuda.is_available():
    sys.exit(f"there is no GPU that PyTorch {torch.__version__} can use; nothing was measured")
device = torch.cuda.get_device_properties(0)
print(
    f"{torch.cuda.device_count()} x {device.name}, {device.total_memory / 2**30:.0f} GiB, compute "
    f"capability {device.major}.{device.minor}, PyTorch {torch.__version__}, CUDA {torch.version.cuda}"
)
EOF
) || exit 2

folder="gpu-$(date -u +%Y-%m-%d)"
if [ $# -gt 0 ] && [ "$1" != "--" ]; then folder=$1; shift; fi
[ "${1:-}" = "--" ] && shift
mkdir -p "$folder" || exit 2
table="$folder/table.md"
failed=0
{
    echo "$(date -u +%Y-%m-%d), $about, commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown):"
    echo
    echo "| what | seconds | how it ended |"
    echo "| --- | --- | --- |"
} > "$table"

# step NAME COMMAND...: run it, keep what it says, and add its row.
step() {
    local name=$1 log began ended result
    log="$folder/${name// /-}.log"
    shift
    echo "$name: $*"
    began=$(date +%s)
    if "$@" > "$log" 2>&1; then result=done; else result="ended with $?"; failed=1; fi
    ended=$(date +%s)
    [ "$name" = tests ] && result="$result: $(grep -E ' (passed|failed|error|skipped)' "$log" | tail -1 | tr -d '=|')"
    echo "| $name | $((ended - began)) | $result |" >> "$table"
    echo "    $result"
}

step tests "$python" -m pytest -m gpu -n 0 -q -rf
# The whole way of a user: a small study, all its trials in one program, page and paper.
step study "$python" -m paribus run quickstart --device cuda --results "$folder/quickstart"
step status "$python" -m paribus status "$folder/quickstart"
# Its weights, each evaluated again by itself.
step verify "$python" -m paribus verify "$folder/quickstart" --trials --device cuda
step plan "$python" -m paribus plan embedding-norm --set data.corpus=pydoc --device cuda --stack 16
step stacks "$python" benchmarks/gpu_stacks.py --json "$folder/stacks.json" \
    ${NANOGPT:+--nanogpt "$NANOGPT"} "$@"
# Where there are two GPUs, a whole study with two devices per trial.
if [ "${about%% *}" -ge 2 ]; then
    step "two devices" "$python" -m paribus run quickstart --set resources.devices_per_trial=2 \
        --device cuda --results "$folder/two-devices"
else
    echo "| two devices | 0 | there is one GPU |" >> "$table"
fi

for name in stacks; do
    echo
    echo "What $name measured:"
    echo
    echo '```'
    cat "$folder/$name.log"
    echo '```'
done >> "$table"
echo "table: $table"
exit "$failed"
