"""Go prints tensors as PyTorch does."""

import json

import pytest
from make_print_golden import GOLDEN, RELEASE, golden, lines, random_cases

from pytorch_bridge.testing.gotests import run_go


def test_golden_file_is_what_pytorch_prints():
    recorded = GOLDEN.read_text()
    made_with = json.loads(recorded)["torch"]
    if made_with != RELEASE:
        pytest.skip(f"the golden file is of torch {made_with}, and this is {RELEASE}")
    was, now = recorded.splitlines(), lines(golden()).splitlines()
    stale = sorted(set(was) ^ set(now))
    assert was == now, "run python tests/make_print_golden.py; it changes\n" + "\n".join(stale)


@pytest.mark.smoke
@pytest.mark.filterwarnings("ignore:.*support is experimental")
def test_random_tensors_print_alike_in_go(library, tmp_path):
    cases = tmp_path / "cases.json"
    chosen = random_cases(seed=1, count=4000)
    if json.loads(GOLDEN.read_text())["torch"] != RELEASE:
        # Older releases print this dtype's powers of two in another way; Go prints as the newest.
        chosen = [case for case in chosen if "float8_e8m0fnu" not in json.dumps(case)]
    cases.write_text(json.dumps({"strided": chosen}))
    arguments = ["-run=^TestPrintStrided$", "./gotorch", "-args", f"-print-golden={cases}"]
    done = run_go("test", "-vet=off", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
