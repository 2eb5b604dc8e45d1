"""What deploy/ has is what the command and the other end understand: systemd, Kubernetes, KServe."""

from __future__ import annotations

import copy
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytorch_bridge.native.toolchain import ROOT

UNIT = ROOT / "deploy/systemd/gotorch-serve.service"
MANIFESTS = sorted((ROOT / "deploy/kubernetes").glob("*.yaml"))

# Fields of KServe's own types, of which there is no schema in a package without the whole of its SDK.
# https://kserve.github.io/website/docs/reference/crd-api
RUNTIME = {
    "annotations", "labels", "supportedModelFormats", "multiModel", "disabled", "protocolVersions",
    "containers", "volumes", "nodeSelector", "affinity", "tolerations", "imagePullSecrets", "hostIPC",
    "resourceClaims", "schedulerName", "workerSpec", "grpcDataEndpoint", "grpcEndpoint", "httpDataEndpoint",
    "builtInAdapter", "replicas", "storageHelper",
}  # fmt: skip
FORMAT = {"name", "version", "autoSelect", "priority"}
PREDICTOR = {"minReplicas", "maxReplicas", "model"}
MODEL = {"modelFormat", "runtime", "protocolVersion", "storageUri"}


def documents() -> list[Any]:
    return [d for path in MANIFESTS for d in yaml.safe_load_all(path.read_text())]


def of_kind(kind: str) -> Any:
    (found,) = [d for d in documents() if d["kind"] == kind]
    return found


def defaults() -> dict[str, str]:
    """The addresses of the command, from where they are set."""
    text = (ROOT / "gotorch/serve/daemon/config.go").read_text()
    found = re.search(r'HTTP: ":(\d+)", GRPC: ":(\d+)", Metrics: ":(\d+)"', text)
    assert found
    return dict(zip(("http", "grpc", "metrics"), found.groups(), strict=True))


def keys() -> set[str]:
    """What a configuration may have, by the tags of the struct."""
    text = (ROOT / "gotorch/serve/daemon/config.go").read_text()
    return set(re.findall(r'`key:"(\w+)"', text))


def test_kubernetes_takes_the_manifests() -> None:
    kubernetes_validate = pytest.importorskip(
        "kubernetes_validate", reason="pip install kubernetes-validate for the schemas"
    )
    version = kubernetes_validate.latest_version()
    for document in documents():
        if not re.search(r"kserve|kubeflow", document["apiVersion"]):
            kubernetes_validate.validate(document, version, strict=True)
    wrong = copy.deepcopy(of_kind("Deployment"))
    wrong["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, version, strict=True)
    # The pods of a training, and the containers of a runtime, which are those of a pod.
    for replicas in of_kind("PyTorchJob")["spec"]["pytorchReplicaSpecs"].values():
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "rank"}}
        kubernetes_validate.validate({**pod, **replicas["template"]}, version, strict=True)
    spec = of_kind("ServingRuntime")["spec"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "runtime"},
        "spec": {"containers": spec["containers"], "volumes": spec["volumes"]},
    }
    kubernetes_validate.validate(pod, version, strict=True)


def test_probes_and_ports_are_those_of_the_command() -> None:
    ports = {name: int(port) for name, port in defaults().items()}
    deployment = of_kind("Deployment")["spec"]["template"]["spec"]
    (container,) = deployment["containers"]
    named = {p["name"]: p["containerPort"] for p in container["ports"]}
    assert named == ports
    for probe, path in (("startup", "/readyz"), ("readiness", "/readyz"), ("liveness", "/livez")):
        assert container[f"{probe}Probe"]["httpGet"] == {"path": path, "port": "metrics"}
    served = {p["name"]: (p["port"], p["targetPort"]) for p in of_kind("Service")["spec"]["ports"]}
    assert served == {"http": (ports["http"], "http"), "grpc": (ports["grpc"], "grpc")}
    labels = of_kind("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert of_kind("Service")["spec"]["selector"].items() <= labels.items()
    assert of_kind("Deployment")["spec"]["selector"]["matchLabels"].items() <= labels.items()

    (runtime,) = of_kind("ServingRuntime")["spec"]["containers"]
    assert runtime["name"] == "kserve-container", "by which KServe finds it"
    assert runtime["ports"][0]["containerPort"] == ports["http"]
    for probe, path in (("readiness", "ready"), ("liveness", "live")):
        expected = {"path": f"/v2/health/{path}", "port": ports["http"]}
        assert runtime[f"{probe}Probe"]["httpGet"] == expected
    for argument in runtime["args"]:
        flag = argument.removeprefix("--").partition("=")[0]
        assert set(flag.replace("-", "_").split(".")) <= keys(), argument


def test_a_pod_is_given_the_time_to_end() -> None:
    config = yaml.safe_load(of_kind("ConfigMap")["data"]["serve.yaml"])
    seconds = sum(int(config[key].removesuffix("s")) for key in ("drain", "shutdown"))
    pod = of_kind("Deployment")["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > seconds

    def check(group: dict[str, Any]) -> None:
        assert group.keys() <= keys()
        for value in group.values():
            if isinstance(value, dict):
                check(value)

    check(config)
    mounts = {m["mountPath"] for m in pod["containers"][0]["volumeMounts"]}
    assert config["model_repository"] == ["/models"]
    assert "/models" in mounts
    assert str(Path(config["auth"]["tokens"]).parent) in mounts
    volumes = {v["name"] for v in pod["volumes"]}
    assert {m["name"] for m in pod["containers"][0]["volumeMounts"]} == volumes


def test_kserve_knows_the_fields() -> None:
    runtime, service = of_kind("ServingRuntime"), of_kind("InferenceService")
    assert runtime["spec"].keys() <= RUNTIME
    (format_,) = runtime["spec"]["supportedModelFormats"]
    assert format_.keys() <= FORMAT
    assert set(runtime["spec"]["protocolVersions"]) <= {"v1", "v2", "grpc-v1", "grpc-v2"}
    predictor = service["spec"]["predictor"]
    assert predictor.keys() <= PREDICTOR
    model = predictor["model"]
    assert model.keys() <= MODEL
    assert model["runtime"] == runtime["metadata"]["name"]
    assert model["modelFormat"]["name"] == format_["name"]
    assert model["protocolVersion"] in runtime["spec"]["protocolVersions"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd to ask")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    text = UNIT.read_text()
    copied = tmp_path / UNIT.name
    # The program is not there; all else is looked at.
    copied.write_text(text.replace("/opt/gotorch-serve/gotorch-serve", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copied)], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    copied.write_text(copied.read_text() + "\n[Service]\nProtectHom=yes\n")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copied)], capture_output=True, text=True
    )
    assert "ProtectHom" in done.stderr, "it would say what it does not know"


def test_the_unit_gives_the_time_to_end() -> None:
    text = UNIT.read_text()
    stop = re.search(r"^TimeoutStopSec=(\d+)s$", text, re.M)
    config = (ROOT / "gotorch/serve/daemon/config.go").read_text()
    drain = re.search(r"Drain: (\d+) \* time.Second, Shutdown: (\d+) \* time.Second", config)
    assert stop
    assert drain
    assert int(stop[1]) > int(drain[1]) + int(drain[2])


# Trainings ----------------------------------------------------------------------------------------

# https://www.kubeflow.org/docs/components/trainer/legacy-v1/user-guides/pytorch
JOB = {"runPolicy", "pytorchReplicaSpecs", "elasticPolicy", "nprocPerNode"}
POLICY = {
    "cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit", "schedulingPolicy", "suspend",
    "managedBy",
}  # fmt: skip


def test_kubeflow_knows_the_fields() -> None:
    spec = of_kind("PyTorchJob")["spec"]
    assert spec.keys() <= JOB
    assert spec["runPolicy"].keys() <= POLICY
    replicas = spec["pytorchReplicaSpecs"]
    assert replicas.keys() == {"Master", "Worker"}
    for one in replicas.values():
        assert one.keys() == {"replicas", "restartPolicy", "template"}
        (container,) = one["template"]["spec"]["containers"]
        assert container["name"] == "pytorch", "by which the operator finds it"
        assert container["args"][0] == "-out", "a flag of examples/distributed"


SLURM = ROOT / "deploy/slurm/train.sbatch"


def test_slurms_script_starts_a_job(tmp_path: Path) -> None:
    """With srun and scontrol of our own: four tasks on two machines, which tell what they were given."""
    commands = {
        "scontrol": 'test "$*" = "show hostnames n[1-2]" && printf "n1\\nn2\\n"',
        "srun": """test "$1" = --kill-on-bad-exit=1; shift
for i in 0 1 2 3; do SLURM_PROCID=$i SLURM_NTASKS=4 SLURM_LOCALID=$((i % 2)) "$@" & done; wait""",
    }
    for name, text in commands.items():
        path = tmp_path / name
        path.write_text(f"#!/bin/bash\nset -eu\n{text}\n")
        path.chmod(0o755)
    program = tmp_path / "program with a space"
    program.write_text(
        '#!/bin/bash\necho "$RANK/$WORLD_SIZE $LOCAL_RANK $MASTER_ADDR:$MASTER_PORT $OMP_NUM_THREADS $*"\n'
    )
    program.chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_NODELIST": "n[1-2]"}
    env |= {"SLURM_JOB_ID": "120007", "SLURM_CPUS_PER_TASK": "3"}
    command = ["bash", str(SLURM), str(program), "-out", "a b"]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"{rank}/4 {rank % 2} n1:20007 3 -out a b" for rank in range(4)
    ]
    nothing = subprocess.run(["bash", str(SLURM)], env=env, capture_output=True, text=True)
    assert nothing.returncode == 2
    assert "say what to run" in nothing.stderr
    options = re.findall(r"^#SBATCH --([\w-]+)", SLURM.read_text(), re.M)
    assert {"signal", "requeue", "ntasks-per-node"} <= set(options)
