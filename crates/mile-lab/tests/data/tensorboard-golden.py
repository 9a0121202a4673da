"""Writes tensorboard-golden.tfevents with TensorBoard's own messages and record writer.

Made with tensorboard 2.21.0, protobuf 7.36.2: python -m venv v && v/bin/pip install tensorboard==2.21.0 protobuf==7.36.2
&& v/bin/python tensorboard-golden.py. The test in src/tensorboard.rs writes the same events.
"""

from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

BEGUN = 1_700_000_000.0


def scalars(round, loss):
    """What the record in the Rust test holds."""
    return {
        "loss": loss,
        "local_loss": loss * 1.1,
        "worst_loss": loss * 1.5,
        "consensus_error": loss * 1e-3,
        "bytes_sent": 100 * round,
        "gradient_evals": 100 * round,
        "wall_s": 0.5 * round,
    }


events = [Event(wall_time=BEGUN, file_version="brain.Event:2")]
for round, loss in [(1, 1.5), (300, 0.25), (40_000, float("inf"))]:
    values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars(round, loss).items()]
    events.append(Event(wall_time=BEGUN + 0.5 * len(events), step=round, summary=Summary(value=values)))

with open(Path(__file__).with_suffix(".tfevents"), "wb") as file:
    writer = RecordWriter(file)
    for event in events:
        writer.write(event.SerializeToString())
    writer.flush()
