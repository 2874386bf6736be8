"""PNG files of any size, and the memory that decoding them takes."""

import os
import struct
import zlib

HAS_PEAK = os.access("/proc/self/clear_refs", os.W_OK)


def chunk(kind, content):
    body = kind + content
    return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))


def png(width, height, *chunks, pixels=None):
    """Return a black PNG with one bit per pixel; `chunks` are before its pixels."""
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    if pixels is None:
        compress = zlib.compressobj(9)
        row = bytes(1 + -(-width // 8))
        pixels = b"".join(compress.compress(row) for _ in range(height)) + compress.flush()
    parts = [chunk(b"IHDR", header), *chunks, chunk(b"IDAT", pixels), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def reset_peak():
    """Let the peak start again from the resident memory, which is returned in MB; see proc(5)."""
    with open("/proc/self/clear_refs", "w") as control:
        control.write("5")
    return _memory("VmRSS")


def peak():
    """Return the peak of the resident memory since `reset_peak` in MB."""
    return _memory("VmHWM")


def _memory(key):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith(key))
