"""Look-ups that go on beside what a test does."""

import threading
import time

import grpc


class LookUps(threading.Thread):
    """Looks a known problem up all the time; keeps errors and the count."""

    def __init__(self, daemon, text):
        super().__init__()
        self._daemon, self._text = daemon, text
        self._stopping = threading.Event()
        self.count, self.errors, self.longest = 0, [], 0.0

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._stopping.set()
        self.join()

    def run(self):
        with self._daemon.client() as client:
            while not self._stopping.is_set():
                began = time.monotonic()
                try:
                    outcome = client.get_one(self._text, timeout=30).WhichOneof("outcome")
                    if outcome != "answer":
                        self.errors.append(outcome)
                except grpc.RpcError as error:
                    self.errors.append(error)
                self.count += 1
                self.longest = max(self.longest, time.monotonic() - began)
