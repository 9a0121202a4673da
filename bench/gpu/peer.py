"""Gradient and update of ten stacked agents in PyTorch, in its best variants: milliseconds for a step, median of many replays."""
import statistics, sys, time
import torch, torch.nn.functional as F
from torch.func import grad, vmap
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False
torch.backends.cudnn.benchmark = True
torch.manual_seed(0)
A, D = 10, "cuda"

def conv(i, o, k): return [(o, i, k, k), (o,)]
MNIST = conv(1, 16, 5) + conv(16, 32, 5) + [(10, 1568), (10,)]
CIFAR = conv(3, 32, 3) + conv(32, 64, 3) + conv(64, 128, 3) + [(256, 2048), (256,), (10, 256), (10,)]

def mnist(p, x, mask):
    x = F.max_pool2d(F.relu(F.conv2d(x, p[0], p[1], padding=2)), 2)
    x = F.max_pool2d(F.relu(F.conv2d(x, p[2], p[3], padding=2)), 2)
    return F.linear(x.flatten(1), p[4], p[5])

def cifar(p, x, mask):
    for k in (0, 2, 4): x = F.max_pool2d(F.relu(F.conv2d(x, p[k], p[k + 1], padding=1)), 2)
    return F.linear(F.relu(F.linear(x.flatten(1), p[6], p[7])) * mask, p[8], p[9])

def median(step, repeats=60):
    for _ in range(10): step()
    torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record(); step(); b.record(); b.synchronize()
        times.append(a.elapsed_time(b))
    return statistics.median(times)

def graphed(step):
    s = torch.cuda.Stream(); s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        for _ in range(5): step()
    torch.cuda.current_stream().wait_stream(s)
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g): step()
    return g.replay

for name, shapes, net, image in (("mnist", MNIST, mnist, (1, 28, 28)), ("cifar10", CIFAR, cifar, (3, 32, 32))):
    for batch in (32, 128):
        p = [(torch.rand(A, *s, device=D) - 0.5) * 0.1 for s in shapes]
        data = torch.randint(0, 256, (20000, *image), device=D, dtype=torch.uint8)
        labels = torch.randint(0, 10, (20000,), device=D)
        index = torch.randint(0, 20000, (A, batch), device=D)
        mask = (torch.rand(A, batch, 256, device=D) > 0.25) / 0.75
        loss = lambda p, x, y, m: F.cross_entropy(net(p, x, m), y)
        def gradients(p, x, y, m): return vmap(grad(loss))(p, x, y, m)
        def step_with(f):
            def step():
                x = data[index.flatten()].view(A, batch, *image).float() / 255
                g = f(p, x, labels[index], mask)
                torch._foreach_add_(p, g, alpha=-1e-3)
            return step
        print(f"torch {torch.__version__} {name} batch {batch} vmap {median(step_with(gradients)):.3f} ms", flush=True)
        print(f"torch {torch.__version__} {name} batch {batch} vmap-graph {median(graphed(step_with(gradients))):.3f} ms", flush=True)
        try:
            compiled = torch.compile(gradients)
            print(f"torch {torch.__version__} {name} batch {batch} compile-graph {median(graphed(step_with(compiled))):.3f} ms", flush=True)
        except Exception as e:
            print("compile failed:", str(e)[:300], flush=True)
