"""Ways to a listener that the tool has no business with."""

import os
import select
import socket
import struct
import threading

from arena import attack, nothing, told

SOCK_SEQPACKET = getattr(socket, "SOCK_SEQPACKET", 5)
MSG_FASTOPEN = 0x20000000
# What was sent on this machine has come by then, also where the kernel puts off its work.
MOMENT_S = 0.1


def heard(place, facts, output):
    """The listener got the word."""
    word = place.token.encode()
    for listener in place.kept:
        if getattr(listener, "is_caller", False):
            if listener.heard(word):
                return True
            continue
        if listener.type == socket.SOCK_DGRAM or listener.type == socket.SOCK_RAW:
            if word in receive(listener):
                return True
            continue
        if not select.select([listener], [], [], MOMENT_S)[0]:
            continue
        connection = listener.accept()[0]
        if word in receive(connection) or facts.get("connection_counts"):
            return True
    return False


def receive(connection):
    """What has come, or comes in a moment: the sender is done."""
    data = b""
    select.select([connection], [], [], MOMENT_S)
    connection.settimeout(0.0)
    try:
        while True:
            more = connection.recv(65536)
            if not more:
                break
            data += more
    except OSError:
        pass
    return data


def listen(family, kind, address, place):
    listener = place.keep(socket.socket(family, kind))
    listener.bind(address)
    if kind != socket.SOCK_DGRAM:
        listener.listen(8)
    return listener


def tcp4(place):
    listener = listen(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0), place)
    return {"port": listener.getsockname()[1]}


def tcp6(place):
    listener = listen(socket.AF_INET6, socket.SOCK_STREAM, ("::1", 0), place)
    return {"port": listener.getsockname()[1]}


def udp4(place):
    listener = listen(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0), place)
    return {"port": listener.getsockname()[1]}


def udp6(place):
    listener = listen(socket.AF_INET6, socket.SOCK_DGRAM, ("::1", 0), place)
    return {"port": listener.getsockname()[1]}


def unix(kind, abstract=False, outside=False):
    def stage(place):
        path = os.path.join(place.outside if outside else place.victim, "socket")
        if abstract:
            path = "\0" + place.token + "-abstract"
        listen(socket.AF_UNIX, kind, path, place)
        return {"path": path}

    return stage


# TCP


@attack(tcp4, heard, also=["local"])
def create_connection(facts):
    socket.create_connection(("127.0.0.1", facts["port"]), 5).sendall(facts["token"].encode())


@attack(tcp4, heard, also=["local"])
def connect_ex(facts):
    connection = socket.socket()
    connection.connect_ex(("127.0.0.1", facts["port"]))
    connection.sendall(facts["token"].encode())


@attack(tcp4, heard, also=["local"])
def inner_socket_module(facts):
    import _socket

    connection = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM, 0)
    connection.connect(("127.0.0.1", facts["port"]))
    connection.sendall(facts["token"].encode())


@attack(tcp6, heard, also=["local"])
def tcp_version_6(facts):
    connection = socket.socket(socket.AF_INET6)
    connection.connect(("::1", facts["port"]))
    connection.sendall(facts["token"].encode())


@attack(tcp4, heard, also=["local"])
def tcp_version_4_in_6(facts):
    connection = socket.socket(socket.AF_INET6)
    connection.connect(("::ffff:127.0.0.1", facts["port"]))
    connection.sendall(facts["token"].encode())


@attack(tcp4, heard, also=["local"])
def fast_open(facts):
    """A connection without connect."""
    connection = socket.socket()
    connection.sendto(facts["token"].encode(), MSG_FASTOPEN, ("127.0.0.1", facts["port"]))


@attack(tcp4, heard, also=["local"])
def multipath(facts):
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
    connection.connect(("127.0.0.1", facts["port"]))
    connection.sendall(facts["token"].encode())


@attack(tcp4, heard, also=["local"])
def http(facts):
    import urllib.request

    url = "http://127.0.0.1:%d/%s" % (facts["port"], facts["token"])
    urllib.request.urlopen(url, timeout=0.3)


@attack(tcp4, heard, also=["local"])
def asyncio_connection(facts):
    import asyncio

    async def send():
        _, writer = await asyncio.open_connection("127.0.0.1", facts["port"])
        writer.write(facts["token"].encode())
        await writer.drain()

    asyncio.run(send())


@attack(tcp4, heard, also=["local"])
def c_library(facts):
    import ctypes

    from raw import check, libc

    fd = check(libc.socket(2, 1, 0))
    address = struct.pack("!HI8x", facts["port"], 0x7F000001)
    check(libc.connect(fd, struct.pack("H", 2) + address, 16))
    word = facts["token"].encode()
    check(libc.send(fd, ctypes.c_char_p(word), len(word), 0))


@attack(tcp4, heard, also=["online", "local", "local_online"])
def ring(facts):
    """io_uring: socket, connect and send, none of them a system call."""
    import ctypes

    from raw import Ring, address

    ring = Ring()
    fd = ring.ask(Ring.SOCKET, 2, length=0, offset=1)
    to = ctypes.create_string_buffer(struct.pack("H", 2) + struct.pack("!HI8x", facts["port"], 0x7F000001))
    ring.ask(Ring.CONNECT, fd, address(to), 0, offset=16)
    word = ctypes.create_string_buffer(facts["token"].encode())
    ring.ask(Ring.SEND, fd, address(word), len(facts["token"]))


@attack(tcp4, heard, also=["online", "local", "local_online"])
def calls_of_32_bits(facts):
    """socketcall by int 0x80."""
    from raw import Low, int80

    low = Low()
    words = lambda *w: low.put(struct.pack("%dI" % len(w), *w))
    fd = int80(102, 1, words(2, 1, 0))
    to = low.put(struct.pack("H", 2) + struct.pack("!HI8x", facts["port"], 0x7F000001))
    int80(102, 3, words(fd, to, 16))
    word = facts["token"].encode()
    int80(4, fd, low.put(word), len(word))


class Caller:
    """Tries to connect to a port until it can, or until it is judged."""

    is_caller = True

    def __init__(self, port):
        self.port, self.data, self.is_over = port, b"", threading.Event()
        self.thread = threading.Thread(target=self.call)
        self.thread.start()

    def call(self):
        while not self.is_over.wait(0.01):
            try:
                with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                    connection.settimeout(10)
                    self.data = connection.recv(1000)
                    return
            except OSError:
                pass

    def heard(self, word):
        self.is_over.set()
        self.thread.join()
        return word in self.data

    def close(self):
        self.is_over.set()


def caller(place):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place.keep(Caller(port))
    return {"port": port}


@attack(caller, heard, also=["local"])
def listening(facts):
    """A door of its own for whoever is outside."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", facts["port"]))
    listener.listen(1)
    listener.settimeout(20)
    listener.accept()[0].sendall(facts["token"].encode())


# UDP and below


@attack(udp4, heard, also=["local"])
def udp_sendto(facts):
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.sendto(facts["token"].encode(), ("127.0.0.1", facts["port"]))


@attack(udp4, heard, also=["local"])
def udp_connected(facts):
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.connect(("127.0.0.1", facts["port"]))
    sender.send(facts["token"].encode())


@attack(udp6, heard, also=["local"])
def udp_version_6(facts):
    sender = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    sender.sendmsg([facts["token"].encode()], [], 0, ("::1", facts["port"]))


def udp_packet(facts, port):
    word = facts["token"].encode()
    return struct.pack("!HHHH", 40000, port, 8 + len(word), 0) + word


@attack(udp4, heard, also=["online", "local", "local_online"], users="root")
def raw_ip(facts):
    sender = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)
    sender.sendto(udp_packet(facts, facts["port"]), ("127.0.0.1", 0))


def wire(place):
    listener = place.keep(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)))
    listener.bind(("lo", 3))


@attack(wire, heard, also=["online", "local", "local_online"], users="root")
def packet_on_the_wire(facts):
    sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    sender.bind(("lo", 0))
    sender.send(b"\0" * 12 + b"\x08\x00" + facts["token"].encode())


@attack(nothing, told, also=["online", "local", "local_online"])
def netlink(facts):
    """Asks the kernel for a family of its generic messages."""
    asker = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 16)
    name = struct.pack("=HH8s", 11, 2, b"nlctrl")
    asker.send(struct.pack("=IHHIIBBH", 32, 16, 1, 1, 0, 3, 1, 0) + name)
    return facts["token"] if b"nlctrl\0" in asker.recv(65536) else None


@attack(
    nothing,
    told,
    also=["online", "local", "local_online"],
    void="this machine has no interface but its loopback",
)
def interfaces(facts):
    """Asks the kernel for the machine's interfaces."""
    names = {name for _, name in socket.if_nameindex()}
    return facts["token"] if names - {"lo"} else None


@attack(nothing, told, void="this machine's kernel has no loopback for virtual machines' sockets")
def virtual_machine_socket(facts):
    sender = socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
    sender.settimeout(0.2)
    sender.connect((1, 9999))
    return facts["token"]


@attack(nothing, told, void="this machine's kernel has no sockets for its cipher code")
def cipher_socket(facts):
    asker = socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)
    asker.bind(("hash", "sha256"))
    return facts["token"]


@attack(nothing, told, void="x32 calls are not built into this machine's kernel")
def x32_socket(facts):
    from raw import syscall

    syscall((1 << 30) + 41, 2, 1, 0)
    return facts["token"]


# Unix sockets


@attack(unix(socket.SOCK_STREAM), heard, also=["online"])
def unix_stream(facts):
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(facts["path"])
    connection.sendall(facts["token"].encode())


@attack(unix(socket.SOCK_DGRAM), heard, also=["online", "local", "local_online"])
def unix_datagram(facts):
    sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sender.sendto(facts["token"].encode(), facts["path"])


@attack(unix(socket.SOCK_STREAM, outside=True), heard, tool="local", also=["local_online"])
def unix_stream_outside(facts):
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(facts["path"])
    connection.sendall(facts["token"].encode())


@attack(unix(socket.SOCK_STREAM, outside=True), heard, tool="local", also=["local_online"])
def unix_stream_by_a_link(facts):
    """A link in a folder of its own leads to a socket outside."""
    link = os.path.join(os.environ["TMPDIR"], "link")
    os.symlink(facts["path"], link)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(link)
    connection.sendall(facts["token"].encode())


@attack(unix(SOCK_SEQPACKET, outside=True), heard, tool="local", also=["local_online"])
def unix_packets_outside(facts):
    connection = socket.socket(socket.AF_UNIX, SOCK_SEQPACKET)
    connection.connect(facts["path"])
    connection.send(facts["token"].encode())


@attack(unix(socket.SOCK_STREAM), heard, tool="local", also=["local_online"])
def unix_stream_in_the_workspace(facts):
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(facts["path"])
    connection.sendall(facts["token"].encode())


@attack(unix(SOCK_SEQPACKET), heard, also=["online"])
def unix_packets(facts):
    connection = socket.socket(socket.AF_UNIX, SOCK_SEQPACKET)
    connection.connect(facts["path"])
    connection.send(facts["token"].encode())


@attack(unix(socket.SOCK_STREAM, True), heard, also=["online", "local", "local_online"])
def abstract_stream(facts):
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(facts["path"])
    connection.sendall(facts["token"].encode())


@attack(unix(socket.SOCK_DGRAM, True), heard, also=["online", "local", "local_online"])
def abstract_datagram(facts):
    sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sender.sendto(facts["token"].encode(), facts["path"])


@attack(unix(socket.SOCK_DGRAM), heard, also=["online", "local", "local_online"])
def pair_aimed_at_a_path(facts):
    """One end of a datagram pair can be sent from to anybody."""
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.sendto(facts["token"].encode(), facts["path"])


@attack(unix(socket.SOCK_DGRAM, True), heard, also=["online", "local", "local_online"])
def pair_aimed_at_a_name(facts):
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.connect(facts["path"])
    one.send(facts["token"].encode())


def inherited(place):
    """A connected socket that a careless host leaves open for its tools."""
    listener = listen(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0), place)
    connection = socket.create_connection(listener.getsockname())
    place.at_end(connection.close)
    os.set_inheritable(connection.fileno(), True)
    return {"fd": connection.fileno()}


@attack(inherited, heard, also=["online"])
def inherited_socket(facts):
    """Writes to whatever is open."""
    for fd in range(3, 256):
        try:
            os.write(fd, facts["token"].encode())
        except OSError:
            pass
