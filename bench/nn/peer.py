"""The networks of the benchmark in PyTorch: their speed, and the check of what mile-nn exports.

    peer.py speed PROCESSES THREADS WINDOWS NETWORK,...   JSON: milliseconds of wall time for each agent-gradient, one a window
    peer.py check DIR                                     loads each exported network and compares scores, accuracy, gradient
"""

import json
import multiprocessing
import pathlib
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

WINDOW_S = 0.1


class MnistCnn(nn.Module):
    shape = (1, 28, 28)

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 5, padding=2)
        self.conv2 = nn.Conv2d(16, 32, 5, padding=2)
        self.fc1 = nn.Linear(1568, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc1(x.flatten(1))


class CifarCnn(nn.Module):
    shape = (3, 32, 32)

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.conv3 = nn.Conv2d(64, 128, 3, padding=1)
        self.fc1 = nn.Linear(2048, 256)
        self.fc2 = nn.Linear(256, 10)
        self.dropout = nn.Dropout(0.25)

    def forward(self, x):
        for conv in (self.conv1, self.conv2, self.conv3):
            x = F.max_pool2d(F.relu(conv(x)), 2)
        return self.fc2(self.dropout(F.relu(self.fc1(x.flatten(1)))))


class StridedCnn(nn.Module):
    shape = (1, 28, 28)

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 5, padding=2, stride=2)
        self.norm1 = nn.LayerNorm((16, 14, 14))
        self.conv2 = nn.Conv2d(16, 32, 5, padding=2, stride=2)
        self.norm2 = nn.LayerNorm((32, 7, 7))
        self.fc1 = nn.Linear(1568, 10)

    def forward(self, x):
        x = F.relu(self.norm1(self.conv1(x)))
        x = F.relu(self.norm2(self.conv2(x)))
        return self.fc1(x.flatten(1))


class ResidualCnn(nn.Module):
    shape = (3, 32, 32)

    def __init__(self):
        super().__init__()
        widths = [(3, 32, 1), (32, 32, 1), (32, 32, 1), (32, 64, 2), (64, 64, 1), (64, 64, 1)]
        for i, (before, after, stride) in enumerate(widths, 1):
            setattr(self, f"conv{i}", nn.Conv2d(before, after, 3, padding=1, stride=stride))
            setattr(self, f"norm{i}", nn.GroupNorm(8, after))
        self.fc1 = nn.Linear(64, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(x))), 3, 2)
        x = F.relu(x + self.norm3(self.conv3(F.relu(self.norm2(self.conv2(x))))))
        x = F.relu(self.norm4(self.conv4(x)))
        x = F.relu(x + self.norm6(self.conv6(F.relu(self.norm5(self.conv5(x))))))
        return self.fc1(F.avg_pool2d(x, 8).flatten(1))


NETWORKS = {"mnist-cnn": MnistCnn, "cifar-cnn": CifarCnn, "strided-cnn": StridedCnn, "residual-cnn": ResidualCnn}


def cases(names):
    return [(network, batch, last) for network in names.split(",") for batch in (32, 128) for last in (False, True)]


def time_case(network, batch, channels_last, windows, barrier):
    """Gradients in a window, and start and end of windows that begin together in all processes."""
    model = NETWORKS[network]().train()
    x = torch.rand(batch, *model.shape)
    if channels_last:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    y = torch.randint(0, 10, (batch,))

    def gradient():
        model.zero_grad(set_to_none=True)
        F.cross_entropy(model(x), y).backward()

    for _ in range(3):
        gradient()
    start = time.monotonic()
    gradient()
    repetitions = max(1, round(WINDOW_S / (time.monotonic() - start)))
    spans = []
    for _ in range(windows):
        barrier.wait()
        start = time.monotonic()
        for _ in range(repetitions):
            gradient()
        spans.append((start, time.monotonic()))
    return repetitions, spans


def worker(process, threads, windows, names, barrier, queue):
    torch.set_num_threads(threads)
    torch.manual_seed(process)
    queue.put([time_case(*case, windows, barrier) for case in cases(names)])


def speed(processes, threads, windows, names):
    context = multiprocessing.get_context("spawn")
    barrier, queue = context.Barrier(processes), context.Queue()
    workers = [context.Process(target=worker, args=(i, threads, windows, names, barrier, queue)) for i in range(processes)]
    for process in workers:
        process.start()
    measured = [queue.get() for _ in workers]
    for process in workers:
        process.join()
    results = []
    for (network, batch, channels_last), parts in zip(cases(names), zip(*measured)):
        total = sum(repetitions for repetitions, _ in parts)
        windows_of_all = list(zip(*(spans for _, spans in parts)))
        ms = [(max(e for _, e in spans) - min(s for s, _ in spans)) * 1e3 / total for spans in windows_of_all]
        results.append({"network": network, "batch": batch, "channels_last": channels_last, "ms": ms})
    print(json.dumps({"torch": torch.__version__, "processes": processes, "threads": threads, "gradients": results}))


def read(path, dtype):
    return torch.frombuffer(bytearray(path.read_bytes()), dtype=dtype)


def tensors_of(path, heads):
    values, tensors = read(path, torch.float32), {}
    for head in heads:
        size = torch.Size(head["shape"]).numel()
        tensors[head["name"]], values = values[:size].reshape(head["shape"]), values[size:]
    assert len(values) == 0, f"{path} holds more than its manifest says"
    return tensors


def check(directory):
    results = []
    for folder in sorted(path.parent for path in directory.glob("*/manifest.json")):
        manifest = json.loads((folder / "manifest.json").read_text())
        model = NETWORKS[folder.name]().eval()
        model.load_state_dict(tensors_of(folder / "tensors.f32", manifest["tensors"]))
        height, width, channels = manifest["shape"]
        images = read(folder / "images.u8", torch.uint8).reshape(-1, height, width, channels)
        images = images.permute(0, 3, 1, 2).to(torch.float32) / 255
        labels = read(folder / "labels.u8", torch.uint8).long()
        logits = read(folder / "logits.f32", torch.float32).reshape(-1, manifest["classes"])
        with torch.no_grad():
            scores = model(images)
        batch = manifest["gradient_batch"]
        loss = F.cross_entropy(model(images[:batch]), labels[:batch])
        loss.backward()
        ours = tensors_of(folder / "gradient.f32", manifest["tensors"])
        theirs = dict(model.named_parameters())
        difference = sum(((theirs[name].grad - g).double() ** 2).sum() for name, g in ours.items()) ** 0.5
        norm = sum((p.grad.double() ** 2).sum() for p in theirs.values()) ** 0.5
        results.append({
            "network": folder.name,
            "data": manifest["data"],
            "images": manifest["count"],
            "accuracy": manifest["accuracy"],
            "accuracy_torch": (scores.argmax(1) == labels).double().mean().item(),
            "largest_score_difference": (scores - logits).abs().max().item(),
            "largest_score": logits.abs().max().item(),
            "loss_difference": abs(loss.item() - manifest["gradient_loss"]),
            "relative_gradient_difference": (difference / norm).item(),
        })
    print(json.dumps(results))


if __name__ == "__main__":
    if sys.argv[1] == "speed":
        speed(*map(int, sys.argv[2:5]), sys.argv[5])
    else:
        check(pathlib.Path(sys.argv[2]))
