"""Memory of the card as NVML sees it, all processes together."""

import ctypes
import threading


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Nvml:
    """The first GPU; `available` is false where there is no driver."""

    def __init__(self):
        self.c = self.device = None
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return
        device = ctypes.c_void_p()
        if library.nvmlInit_v2() == 0 and library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0:
            self.c, self.device = library, device

    @property
    def available(self):
        return self.c is not None

    def used_bytes(self):
        memory = _Memory()
        self.c.nvmlDeviceGetMemoryInfo(self.device, ctypes.byref(memory))
        return memory.used

    def text(self, name):
        """Of nvmlSystemGetDriverVersion, or nvmlDeviceGetName."""
        buffer = ctypes.create_string_buffer(96)
        function = getattr(self.c, name)
        status = function(buffer, 96) if "System" in name else function(self.device, buffer, 96)
        return buffer.value.decode() if status == 0 else "unknown"


class PeakMemory:
    """A context manager: the most memory in use at any look, every 20 ms, less what was in use before."""

    def __init__(self, nvml):
        self.nvml, self.bytes = nvml, None
        self._stop = threading.Event()

    def __enter__(self):
        if self.nvml.available:
            self._before = self.nvml.used_bytes()
            self.bytes = 0
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()
        return self

    def _watch(self):
        while not self._stop.wait(0.02):
            self.bytes = max(self.bytes, self.nvml.used_bytes() - self._before)

    def __exit__(self, *_):
        if self.bytes is not None:
            self._stop.set()
            self._thread.join()
