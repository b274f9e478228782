"""The CRC units against the bit-serial definition: every digest, for all data, all registers to begin with, and all lengths.

The polynomials are those that the tests use. Lengths follow by induction: a message of one beat, then a beat after any register,
where the register is replaced by unknowns. Bits are in the order of the wire; registers are reflected, as in the circuits.
"""
from linear import ONE, ZERO, Unknowns, constant

WIDTH = 32
# Highest power first, without x^32, as in SET_POLY: CRC32C, CRC32, Koopman's.
POLYNOMIALS = [0x1EDC6F41, 0x04C11DB7, 0x741B8CD7]


class Wrong(Exception):
    """What the circuit computes is not what the definition says."""


def equal(what, got, expected):
    if got != expected:
        unknown = " (it is not even a sum)" if None in got else ""
        raise Wrong(f"{what} differs from the definition{unknown}")


def reflected(polynomial, width=WIDTH):
    return int(f"{polynomial:0{width}b}"[::-1], 2)


def serial(register, bits, poly):
    """The definition: a bit a step. The polynomial is reflected."""
    for bit in bits:
        out = register[0] ^ bit
        register = [have ^ (out if poly >> i & 1 else ZERO) for i, have in enumerate(register[1:] + [ZERO])]
    return register


def add(a, b):
    return [x ^ y for x, y in zip(a, b)]


def power(register, bits, poly):
    """v -> v^bits, which is linear where `bits` is a power of two: bit b, that is x^(31 - b), becomes x^(bits (31 - b))."""
    result = [ZERO] * WIDTH
    column = constant(1 << 31, WIDTH)
    for b in reversed(range(WIDTH)):
        result = [have ^ (register[b] if bit else ZERO) for have, bit in zip(result, column)]
        column = serial(column, [ZERO] * bits, poly)
    return result


def messages(unknowns, lengths, grain_bits):
    """Messages of so many grains, all of unknowns."""
    return [unknowns.take(grain_bits * length) for length in lengths]


def beats(message, beat_bits, grain_bits):
    """The inputs of a message's beats. What a last beat lacks is unknown too: it must not matter."""
    cut = [message[at:at + beat_bits] for at in range(0, max(len(message), 1), beat_bits)]
    for at, bits in enumerate(cut):
        keep = (1 << len(bits) // grain_bits) - 1
        yield {"valid_i": 1, "last_i": int(at + 1 == len(cut)), "keep_i": keep, "data_i": bits + [None] * (beat_bits - len(bits))}


def digests(simulation, streams, idle, most):
    """Sends messages without pauses, each beat until it is accepted. Returns the digests that come."""
    came, queue = [], [beat for stream in streams for beat in stream]
    for _ in range(most):
        out = simulation.cycle(**idle, **(queue[0] if queue else {}))
        if out["digest_valid_o"] == [ONE]:
            came.append(out["digest_o"])
        if queue and out.get("ready_o", [ONE]) == [ONE]:
            queue.pop(0)
        if not queue and len(came) == len(streams):
            return came
    raise Wrong(f"{len(came)} of {len(streams)} digests came in {most} cycles")


def narrow(simulation, index):
    """`crc64` with tables of so many bits, by its ports: the loader fills the tables, the unit uses them."""
    for polynomial in POLYNOMIALS + [0xA5C31B77]:
        unknowns = Unknowns()
        poly, init, xor_out = reflected(polynomial), unknowns.take(WIDTH), unknowns.take(WIDTH)
        for _ in range(2):
            simulation.cycle(rst=1)
        simulation.cycle(set_poly_i=1, poly_i=polynomial, init_i=init, xor_out_i=xor_out)
        for _ in range({4: 137, 5: 138}[index]):
            simulation.cycle()
        # One beat each, with every number of bytes; then longer ones, so that messages meet in the pipeline.
        sent = messages(unknowns, list(range(9)) + [16, 17, 24, 31, 8, 3], 8)
        got = digests(simulation, [list(beats(message, 64, 8)) for message in sent], {}, 2000)
        for message, digest in zip(sent, got, strict=True):
            equal(f"crc64, {polynomial:08x}, {len(message) // 8} bytes", digest, add(serial(init, message, poly), xor_out))
        for keep in range(1, 9):
            register, data = step_narrow(simulation, unknowns, poly, index)
            last = unknowns.take(8 * keep)
            [digest] = digests(simulation, [list(beats(last, 64, 8))], {}, 200)
            equal(f"crc64, {polynomial:08x}, a last beat of {keep} bytes after any register", digest,
                  add(serial(serial(register, data, poly), last, poly), xor_out))


def step_narrow(simulation, unknowns, poly, index):
    """A beat of a message that goes on, then any register `a` and tables' sum `high3`: together they stand for the CRC register
    that `a` with 64 zero bits behind it leaves, plus the sum; with tables of 5 bits two bits of the high half are with `a` instead of zeros.
    Then a beat more; returns that register and the beat."""
    first = next(beats(unknowns.take(128), 64, 8))
    simulation.cycle(**first)
    for _ in range(4):
        simulation.cycle()
    a, high = unknowns.take(WIDTH), unknowns.take(WIDTH)
    simulation.set_register("unit.a", a)
    simulation.set_register("unit.high3", high)
    shared = unknowns.take(2) if index == 5 else []
    if shared:
        simulation.set_register("unit.g_shared.shared3", shared)
    data = unknowns.take(64)
    simulation.cycle(**next(beats(data + [ZERO], 64, 8)))
    return add(serial(a, [ZERO] * 32 + shared + [ZERO] * (32 - len(shared)), poly), high), data


def wide(simulation, polynomial, bits):
    """`crc_wide`, which is built for one polynomial."""
    unknowns = Unknowns()
    poly, init, xor_out = reflected(polynomial), unknowns.take(WIDTH), unknowns.take(WIDTH)
    constants = {"init_i": init, "xor_out_i": xor_out}
    words, what = bits // 32, f"crc_wide, {bits} bits, {polynomial:08x}"

    def beat_that_goes_on(data):
        """Until the register has it."""
        simulation.cycle(**constants, **next(beats(data + [ZERO], bits, 32)))
        for _ in range(10):
            simulation.cycle(**constants)
        return power(simulation.register("s"), bits, poly)

    for _ in range(2):
        simulation.cycle(rst=1)
    sent = messages(unknowns, list(range(1, words + 1)) + [2 * words, 2 * words + 1, 3 * words - 1, words, 1], 32)
    got = digests(simulation, [list(beats(message, bits, 32)) for message in sent], constants, 200)
    for message, digest in zip(sent, got, strict=True):
        equal(f"{what}, {len(message) // 32} words", digest, add(serial(init, message, poly), xor_out))
    first = unknowns.take(bits)
    equal(f"{what}, the register after the first beat", beat_that_goes_on(first), serial(init, first, poly))
    any_register, data = unknowns.take(WIDTH), unknowns.take(bits)
    simulation.set_register("s", any_register)
    equal(f"{what}, the register after any other beat", beat_that_goes_on(data),
          serial(power(any_register, bits, poly), data, poly))
    for keep in range(1, words + 1):
        any_register, last = unknowns.take(WIDTH), unknowns.take(32 * keep)
        simulation.set_register("s", any_register)
        [digest] = digests(simulation, [list(beats(last, bits, 32))], constants, 40)
        equal(f"{what}, a last beat of {keep} words after any register", digest,
              add(serial(power(any_register, bits, poly), last, poly), xor_out))
        beat_that_goes_on(first)


def serial_guard(register, bits):
    """The definition of the guard: bit 15 is the highest power, and goes first."""
    for bit in bits:
        out = register[15] ^ bit
        register = [have ^ (out if 0x8BB7 >> i & 1 else ZERO) for i, have in enumerate([ZERO] + register[:15])]
    return register


def guard(simulation, width):
    """`guard`: blocks of one to three beats back to back, then a beat after any register."""
    unknowns = Unknowns()

    def wire(bits):
        """The bits of a beat in the order of the stream: the highest of each byte first."""
        return [bit for at in range(0, len(bits), 8) for bit in reversed(bits[at:at + 8])]

    def send(blocks):
        came, queue = [], [(int(at + 1 == len(block)), beat) for block in blocks for at, beat in enumerate(block)]
        for _ in range(len(queue) + 8):
            last, beat = queue.pop(0) if queue else (0, None)
            out = simulation.cycle(valid_i=int(beat is not None), last_i=last, data_i=beat or 0)
            if out["guard_valid_o"] == [ONE]:
                came.append(out["guard_o"])
        if len(came) != len(blocks):
            raise Wrong(f"{len(came)} of {len(blocks)} guards came")
        return came

    for _ in range(2):
        simulation.cycle(rst=1)
    blocks = [[unknowns.take(width) for _ in range(beats)] for beats in (1, 2, 3, 1, 1)]
    for block, got in zip(blocks, send(blocks), strict=True):
        equal(f"guard, {len(block)} beats", got, serial_guard([ZERO] * 16, [bit for beat in block for bit in wire(beat)]))
    # What register of the definition stands for: y^b is x^(width b).
    columns = [serial_guard(constant(1, 16), [ZERO] * (width * b)) for b in range(16)]

    def in_powers_of_x(register):
        result = [ZERO] * 16
        for bit, column in zip(register, columns):
            result = [have ^ (bit if one else ZERO) for have, one in zip(result, column)]
        return result

    first, beat = unknowns.take(width), unknowns.take(width)
    simulation.cycle(valid_i=1, data_i=first)
    for _ in range(8):
        simulation.cycle()
    equal("guard, the register after the first beat", in_powers_of_x(simulation.register("s")), serial_guard([ZERO] * 16, wire(first)))
    register = unknowns.take(16)
    simulation.set_register("s", register)
    simulation.cycle(valid_i=1, data_i=beat)
    for _ in range(8):
        simulation.cycle()
    equal("guard, the register after any other beat", in_powers_of_x(simulation.register("s")),
          serial_guard(in_powers_of_x(register), wire(beat)))
    register = unknowns.take(16)
    simulation.set_register("s", register)
    [got] = send([[beat]])
    equal("guard, a last beat after any register", got, serial_guard(in_powers_of_x(register), wire(beat)))
