"""Connections that send wrong API keys as fast as they are answered, in a process of their own.

Prints one line as soon as every connection is open, and stops with its standard input.
"""

import asyncio
import contextlib
import secrets
import sys
from collections import Counter


async def insist(port, ready, statuses):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    ready.release()
    while True:
        key = f"dpcvx-{secrets.token_hex(6)}-{secrets.token_urlsafe(32)}"
        head = f"GET /api/v1/schema HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {key}\r\n\r\n"
        writer.write(head.encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        statuses[int(answer.split()[1])] += 1
        length = next(line for line in answer.split(b"\r\n") if line.lower().startswith(b"content-length"))
        await reader.readexactly(int(length.split(b":")[1]))


async def main(port, connections):
    ready, statuses = asyncio.Semaphore(0), Counter()
    tasks = [asyncio.create_task(insist(port, ready, statuses)) for _ in range(connections)]
    for _ in tasks:
        await ready.acquire()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for task in tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, asyncio.IncompleteReadError, OSError):
            await task
    print(dict(statuses), flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
