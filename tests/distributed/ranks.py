"""The ranks in Python of a job of tests/test_distributed.py: main.go in torch.distributed.

Its arguments are the folder of the program, where to meet, the world's size, and the ranks that are
Python's, each of which is a process that is forked from this one, so that torch is imported once.
Under torchrun there is the folder alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

import nets
import torch
import torch.distributed as dist
from torch.distributed import checkpoint, fsdp, init_device_mesh
from torch.distributed.algorithms.ddp_comm_hooks import (
    default_hooks,
    post_localSGD_hook,
    powerSGD_hook,
)
from torch.distributed.algorithms.join import Join
from torch.distributed.algorithms.model_averaging import averagers
from torch.distributed.checkpoint import state_dict
from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer

REDUCES = {
    "sum": dist.ReduceOp.SUM, "product": dist.ReduceOp.PRODUCT, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX,
    "band": dist.ReduceOp.BAND, "bor": dist.ReduceOp.BOR, "bxor": dist.ReduceOp.BXOR, "avg": dist.ReduceOp.AVG,
}  # fmt: skip


class Net(torch.nn.Module):
    """A model with buffers, and with heads of which not each is always used."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Linear(5, 7), torch.nn.BatchNorm1d(7), torch.nn.ReLU()
        )
        self.heads = torch.nn.ModuleList([torch.nn.Linear(7, 2), torch.nn.Linear(7, 2)])
        self.words: torch.nn.Module | None = None

    def forward(self, x: torch.Tensor, heads: list[int]) -> list[torch.Tensor]:
        if self.words is not None:
            x = x + self.words(x.argmax(1))
        x = self.body(x)
        return [self.heads[i](x) for i in heads]


def train(step: dict[str, Any], group: Any, tensors: dict[str, torch.Tensor]) -> None:
    options = step["Train"]
    rank = dist.get_rank(group)
    torch.manual_seed(100 * int(step["ID"]) + rank)
    net = Net()
    if options.get("Sparse"):
        net.words = torch.nn.Embedding(5, 5, sparse=True)
    if not options.get("Heads"):
        net.heads[1].requires_grad_(False)
    model = torch.nn.parallel.DistributedDataParallel(
        net,
        process_group=group,
        bucket_cap_mb=options.get("BucketCapMB"),
        find_unused_parameters=options.get("FindUnusedParameters", False),
        gradient_as_bucket_view=options.get("GradientAsBucketView", False),
        static_graph=options.get("StaticGraph", False),
        broadcast_buffers=not options.get("NoBroadcastBuffers", False),
    )
    if how := options.get("Compression"):
        model.register_comm_hook(group, getattr(default_hooks, f"{how}_compress_hook"))
    hooked(model, options, group)
    trained = [p for p in net.parameters() if p.requires_grad]
    momentum = 0 if options.get("Sparse") else 0.9
    optimizer: Any = torch.optim.SGD(trained, lr=0.1, momentum=momentum)
    local = options.get("Local", {})

    def averaging(optimizer: torch.optim.Optimizer) -> Any:
        averager = averagers.PeriodicModelAverager(local["Period"], local["Start"], group)
        return PostLocalSGDOptimizer(optimizer, averager)

    if local:
        optimizer = averaging(optimizer)
    joinables: list[Any] = [model]
    if options.get("Zero"):
        optimizer = ZeroRedundancyOptimizer(
            trained, torch.optim.SGD, process_group=group, lr=0.1, momentum=momentum
        )
        joinables.append(optimizer)

    def take(i: int) -> None:
        heads = [0, 1] if options.get("Heads") else [0]
        if options.get("Alternate"):
            heads = [(i + (rank if options.get("ByRank") else 0)) % 2]
        alone = options.get("Accumulate", False) and i % 2 == 0
        with model.no_sync() if alone else contextlib.nullcontext():
            outs = model(tensors[f"{step['ID']}.in.{i}"], heads)
            torch.stack([out.pow(2).mean() for out in outs]).sum().backward()
        if not alone:
            optimizer.step()
            optimizer.zero_grad()

    if batches := options.get("Batches"):
        threw = 0.0
        try:
            with Join(
                joinables,
                throw_on_early_termination=options.get("Throw", False),
                divide_by_initial_world_size=not options.get("Remain", False),
            ):
                for i in range(batches[rank]):
                    take(i)
        except RuntimeError as e:
            if "exhausted" not in str(e):
                raise
            threw = 1.0
        tensors[f"{step['ID']}.threw"] = torch.tensor([threw])
        Join(joinables, enable=False)  # else they remain as in a join
    for i in range(step["Inputs"]):
        if local.get("Again") and i == step["Inputs"] // 2:
            state = optimizer.state_dict()
            optimizer = averaging(torch.optim.SGD(trained, lr=0.5))
            optimizer.load_state_dict(state)
        take(i)
    for name, t in model.state_dict().items():
        tensors[f"{step['ID']}.state.{name}"] = t


def hooked(model: Any, options: dict[str, Any], group: Any) -> None:
    """Gives a model the hook that a step says, and has each bucket be reduced before the next one
    begins: the later collectives of a hook begin in threads of Gloo, in an order that may differ
    between ranks."""
    of = options.get("PowerSGD", {})
    state: Any = group
    match options.get("Hook"):
        case None:
            return
        case "all_reduce":
            hook: Any = default_hooks.allreduce_hook
        case "bf16":
            hook = default_hooks.bf16_compress_wrapper(default_hooks.allreduce_hook)
        case "local":
            local, ranks = options["Local"], range(dist.get_world_size(group))
            pairs = [dist.new_group(list(ranks[first : first + 2])) for first in ranks[::2]]
            state = post_localSGD_hook.PostLocalSGDState(
                group,
                pairs[dist.get_rank(group) // 2],
                local["Start"],
                not local.get("Alone", False),
            )
            hook = post_localSGD_hook.post_localSGD_hook
        case "power" | "fp16_power":
            state = powerSGD_hook.PowerSGDState(
                group,
                matrix_approximation_rank=of["Rank"],
                start_powerSGD_iter=of["Start"],
                min_compression_rate=of["Rate"],
                use_error_feedback=not of.get("NoErrorFeedback", False),
                warm_start=not of.get("NoWarmStart", False),
                orthogonalization_epsilon=of.get("Epsilon", 0),
                random_seed=of.get("Seed", 0),
                batch_tensors_with_same_shape=of.get("Batch", False),
            )
            hook = powerSGD_hook.powerSGD_hook
            if options["Hook"] == "fp16_power":
                hook = default_hooks.fp16_compress_wrapper(hook)
        case "gather":

            def hook(state: Any, bucket: Any) -> Any:
                all_ranks = torch.empty(dist.get_world_size(state) * bucket.buffer().numel())
                work = dist.all_gather_into_tensor(
                    all_ranks, bucket.buffer(), group=state, async_op=True
                )
                return work.get_future().then(
                    lambda _: all_ranks.view(dist.get_world_size(state), -1).mean(0)
                )

    def ended(future: Any) -> Any:
        future.wait()
        return future

    # What has annotations is refused where they are strings.
    model.register_comm_hook(state, lambda state, bucket: ended(hook(state, bucket)))


def shard(step: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    options = step["Train"]
    torch.manual_seed(100 * int(step["ID"]))
    nn = torch.nn
    net = nn.Sequential(
        nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 7, bias=False), nn.LayerNorm(7), nn.Linear(7, 3)
    )
    net[4].bias.requires_grad_(not options.get("Frozen", False))
    policy = fsdp.MixedPrecisionPolicy()
    if options.get("Half"):
        policy = fsdp.MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    ranks = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in (net[0], net[2], net):
        fsdp.fully_shard(module, mesh=ranks, mp_policy=policy)
    trained = [p for p in net.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=0.01)
    if folder := options.get("Load"):
        model, optim = state_dict.get_state_dict(net, optimizer)
        note = {"names": None, "table": torch.zeros(2, 2)}
        state = {"model": model, "optim": optim, "epoch": None, "note": note}
        checkpoint.load(state, checkpoint_id=folder)
        state_dict.set_state_dict(
            net, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"]
        )
        read = [state["epoch"], len(state["note"]["names"][1])]
        tensors[f"{step['ID']}.note"] = torch.cat(
            [state["note"]["table"].ravel(), torch.tensor(read, dtype=torch.float32)]
        )
        put_whole(net, optimizer, tensors, f"{step['ID']}.loaded")
        optimizer.param_groups[0]["lr"] *= 10  # which was loaded, too
    for i in range(step["Inputs"]):
        alone = options.get("Accumulate", False) and i % 2 == 0
        net.set_requires_gradient_sync(not alone)
        net(tensors[f"{step['ID']}.in.{i}"]).float().pow(2).mean().backward()
        if not alone:
            if clip := options.get("Clip", 0):
                norm = nn.utils.clip_grad_norm_(net.parameters(), clip, float(options["Norm"]))
                tensors[f"{step['ID']}.norm.{i}"] = norm.full_tensor()
            optimizer.step()
            optimizer.zero_grad()
    if folder := options.get("Save"):
        model, optim = state_dict.get_state_dict(net, optimizer)
        note = {"names": ["a", "bcd"], "table": torch.arange(4.0).reshape(2, 2)}
        state = {"model": model, "optim": optim, "epoch": 7, "note": note}
        checkpoint.save(state, checkpoint_id=folder)
    put_whole(net, optimizer, tensors, step["ID"])


def put_whole(
    net: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    tensors: dict[str, torch.Tensor],
    of: str,
) -> None:
    """Puts the whole state of a sharded module and its optimiser among the tensors."""
    whole = state_dict.StateDictOptions(full_state_dict=True)
    for name, t in state_dict.get_model_state_dict(net, options=whole).items():
        tensors[f"{of}.state.{name}"] = t.clone()
    states = state_dict.get_optimizer_state_dict(net, optimizer, options=whole)["state"]
    for name, state in states.items():
        for key, t in state.items():
            tensors[f"{of}.optimizer.{key}.{name}"] = t.clone()


def long(step: dict[str, Any], group: Any, tensors: dict[str, torch.Tensor]) -> None:
    """Trains a model for as many steps as there are batches. The one rank of a job `Whole` has the
    batches of so many ranks, one after the other in a batch."""
    options, of = step["Train"], step["ID"]
    rank, ranks = dist.get_rank(group), options.get("Whole", 1)
    torch.manual_seed(100 * int(of) + rank)
    model = options["Model"]
    net = nets.build(model)
    ddp = torch.nn.parallel.DistributedDataParallel(
        net,
        process_group=group,
        bucket_cap_mb=options.get("BucketCapMB"),
        find_unused_parameters=options.get("FindUnusedParameters", False),
    )
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.02, momentum=0.9)
    losses = []
    for i in range(step["Inputs"] // 2):
        optimizer.zero_grad()
        x, y = tensors[f"{of}.in.{2 * i}"], tensors[f"{of}.in.{2 * i + 1}"]
        if ranks > 1 and model == "branches":  # whose ranks use other heads
            each = enumerate(zip(x.chunk(ranks), y.chunk(ranks), strict=True))
            parts = [nets.loss(net, model, *xy, (i + r) % 2) for r, xy in each]
            loss = torch.stack(parts).mean()
        else:
            loss = nets.loss(ddp, model, x, y, (i + rank) % 2)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    tensors[f"{of}.losses"] = torch.tensor(losses, dtype=torch.float64)
    for name, t in net.state_dict().items():
        tensors[f"{of}.state.{name}"] = t


def mesh(step: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    names = [f"d{i}" for i in range(len(step["Shape"]))]
    made = init_device_mesh("cpu", tuple(step["Shape"]), mesh_dim_names=names)
    if made.get_coordinate() is None:
        return
    for i, name in enumerate(names):
        t = tensors[f"{step['ID']}.in.{i}"]
        t.add_(made.get_local_rank(name))
        dist.all_reduce(t, group=made.get_group(name))


def sparse(step: dict[str, Any], group: Any, tensors: dict[str, torch.Tensor]) -> None:
    for i in range(step["Inputs"]):
        name = f"{step['ID']}.in.{i}"
        dense = tensors[name]
        t = dense.to_sparse()
        if i % 3 == 1:
            t = dense.to_sparse(1)
        elif i % 3 == 2:
            t = torch.cat([t, t])
        dist.all_reduce(t, REDUCES[step["Reduce"]], group=group)
        t = t.coalesce()
        tensors[f"{name}.indices"], tensors[f"{name}.values"] = t.indices(), t.values()


def run(step: dict[str, Any], group: Any, tensors: dict[str, torch.Tensor]) -> None:
    if step["Op"] == "train":
        train(step, group, tensors)
        return
    if step["Op"] == "shard":
        shard(step, tensors)
        return
    if step["Op"] == "long":
        long(step, group, tensors)
        return
    if step["Op"] == "mesh":
        mesh(step, tensors)
        return
    if step["Op"] == "sparse":
        sparse(step, group, tensors)
        return
    of = step["ID"]
    ins = [tensors[f"{of}.in.{i}"] for i in range(step["Inputs"])]
    outs = [tensors[f"{of}.out.{i}"] for i in range(step["Outputs"])]
    root, size, rank = step["Root"], dist.get_world_size(group), dist.get_rank(group)
    how = REDUCES[step["Reduce"]]
    rest: dict[str, Any] = {"group": group, "async_op": step["Async"]}
    at_root = rank == root
    match step["Op"]:
        case "broadcast":
            work = dist.broadcast(ins[0], group_src=root, **rest)
        case "all_reduce":
            work = dist.all_reduce(ins[0], how, **rest)
        case "all_reduce_coalesced":
            work = dist.all_reduce_coalesced(ins, how, **rest)
        case "reduce":
            work = dist.reduce(ins[0], group_dst=root, op=how, **rest)
        case "all_gather":
            work = dist.all_gather(outs, ins[0], **rest)
        case "all_gather_into_tensor":
            work = dist.all_gather_into_tensor(outs[0], ins[0], **rest)
        case "gather":
            work = dist.gather(ins[0], outs if at_root else None, group_dst=root, **rest)
        case "scatter":
            work = dist.scatter(outs[0], ins if at_root else None, group_src=root, **rest)
        case "reduce_scatter":
            work = dist.reduce_scatter(outs[0], ins, how, **rest)
        case "reduce_scatter_tensor":
            work = dist.reduce_scatter_tensor(outs[0], ins[0], how, **rest)
        case "all_to_all":
            work = dist.all_to_all(outs, ins, **rest)
        case "all_to_all_single":
            splits = step.get("Splits", {}).get(str(dist.get_rank()), [None, None])
            work = dist.all_to_all_single(outs[0], ins[0], *splits, **rest)
        case "ring":
            sent = dist.isend(ins[0], group_dst=(rank + 1) % size, group=group, tag=step["Tag"])
            dist.recv(outs[0], group_src=(rank - 1) % size, group=group, tag=step["Tag"])
            sent.wait()
            return
        case "any":
            if not at_root:
                dist.send(ins[0], group_dst=root, group=group, tag=step["Tag"])
                return
            for _ in range(size - 1):
                t = torch.zeros_like(ins[0])
                source = dist.recv(t, group=group, tag=step["Tag"])
                outs[dist.get_group_rank(group, source)].copy_(t)
            return
        case "barrier":
            dist.barrier(group)
            return
        case "monitored_barrier":
            dist.monitored_barrier(group, wait_all_ranks=step["Async"])
            return
        case op:
            raise AssertionError(op)
    if work is not None:
        work.wait()


def rank_of_job(folder: Path, **where: Any) -> None:
    program = json.loads((folder / "program.json").read_text())
    dist.init_process_group("gloo", timeout=timedelta(minutes=4), **where)
    rank = dist.get_rank()
    tensors = torch.load(folder / f"in{rank}.pt")
    groups = [dist.group.WORLD, *(dist.new_group(ranks) for ranks in program["Groups"])]
    said = {}
    for step in program["Steps"]:
        group = groups[step["Group"] + 1]
        if group == dist.GroupMember.NON_GROUP_MEMBER:
            continue
        try:
            run(step, group, tensors)
        except (RuntimeError, ValueError, TypeError) as e:
            said[step["ID"]] = f"{type(e).__name__}: {e}"
    if dist.get_world_size() > 1:
        dist.barrier()
    dist.destroy_process_group()
    torch.save({k: t.contiguous() for k, t in tensors.items()}, folder / f"out{rank}.pt")
    (folder / f"out{rank}.json").write_text(json.dumps(said))


def main() -> None:
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    if len(sys.argv) == 2:
        rank_of_job(folder)
        return
    meet, size = sys.argv[2], int(sys.argv[3])
    children = []
    for rank in map(int, sys.argv[4:]):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                rank_of_job(folder, init_method=meet, world_size=size, rank=rank)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(child)
    failed = [child for child in children if os.waitpid(child, 0)[1] != 0]
    sys.exit(len(failed))


if __name__ == "__main__":
    main()
