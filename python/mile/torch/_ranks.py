"""Processes that share the agents, started by `torchrun`."""

from __future__ import annotations

import atexit
import os
import socket
from typing import Any

import torch
import torch.distributed as dist


def started_by_torchrun() -> bool:
    """Whether this process is one of several."""
    if not dist.is_available():
        return False
    return dist.is_initialized() or int(os.environ.get("WORLD_SIZE", "1")) > 1


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def backend(device: torch.device) -> str:
    """What sends the tensors of a device: NCCL from GPU to GPU, if it is available and each process on this machine has its own GPU; otherwise gloo, through host memory."""
    if device.type != "cuda" or not dist.is_nccl_available():
        return "gloo"
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return "nccl" if here <= torch.cuda.device_count() else "gloo"


def own_gpu() -> int:
    """The GPU of this process: that of its local rank, with GPUs assigned in turn if there are fewer of them than processes."""
    local = os.environ.get("LOCAL_RANK")
    return torch.cuda.current_device() if local is None else int(local) % max(torch.cuda.device_count(), 1)


class Ranks:
    """The processes of a `torchrun` job, seen from one of them, and what they send each other."""

    def __init__(self, device: torch.device) -> None:
        if not dist.is_initialized():
            if device.type == "cuda":
                torch.cuda.set_device(device)
            dist.init_process_group(backend(device))
            # The threads of a group that still exists when the process ends may find the other processes gone, and abort this one.
            atexit.register(_leave)
        self.rank = dist.get_rank()
        self.count = dist.get_world_size()
        self.name = f"rank {self.rank} on {socket.gethostname()}"
        # NCCL cannot send bytes from host to host.
        self.control: Any = dist.new_group(backend="gloo")
        self.direct = dist.get_backend() != "gloo" or device.type == "cpu"
        """Whether tensors are sent directly from their device."""

    def block(self, agents: int, rank: int | None = None) -> range:
        """The agents of a rank."""
        k = self.rank if rank is None else rank
        return range(k * agents // self.count, (k + 1) * agents // self.count)

    def all_gather(self, own: bytes) -> list[bytes]:
        """The bytes of all ranks. All ranks must call it together."""
        found: list[Any] = [None] * self.count
        dist.all_gather_object(found, own, group=self.control)
        return found

    def broadcast(self, source: int, own: bytes) -> bytes:
        """The bytes of one rank. All ranks must call it together."""
        box: list[Any] = [own if self.rank == source else None]
        dist.broadcast_object_list(box, src=source, group=self.control)
        found: bytes = box[0]
        return found

    def exchange(self, sends: dict[int, torch.Tensor], receives: dict[int, torch.Tensor]) -> None:
        """Sends tensors to some ranks and receives tensors from some, point to point."""
        moved = sends if self.direct else {rank: tensor.cpu() for rank, tensor in sends.items()}
        room = receives if self.direct else {rank: torch.empty_like(tensor, device="cpu") for rank, tensor in receives.items()}
        calls = [dist.P2POp(dist.isend, tensor, rank) for rank, tensor in moved.items()]
        calls += [dist.P2POp(dist.irecv, tensor, rank) for rank, tensor in room.items()]
        for request in dist.batch_isend_irecv(calls) if calls else []:
            request.wait()
        if not self.direct:
            for rank, tensor in room.items():
                receives[rank].copy_(tensor)

    def sum_in_order(self, own: torch.Tensor) -> torch.Tensor:
        """Sums `float64` rows on the CPU from the first rank to the last, the rows of each rank in order; all ranks get the sum."""
        total = torch.zeros(own.shape[1], dtype=torch.float64)
        if self.rank > 0:
            dist.recv(total, self.rank - 1, group=self.control)
        for row in own:
            total += row
        if self.rank + 1 < self.count:
            dist.send(total, self.rank + 1, group=self.control)
        dist.broadcast(total, self.count - 1, group=self.control)
        return total
