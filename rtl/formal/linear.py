"""Exact simulation of circuits whose outputs are sums over GF(2) of unknown input bits, as a CRC is.

A bit is `None`, of which nothing is known, or a sum: an integer whose bit 0 is the constant 1 and whose other bits each are an
unknown. What would be a product of unknowns becomes `None`. So a sum that comes out is the circuit's for all values of the
unknowns, and comparing it with the sum that the definition gives is a proof. A solver cannot do that: it takes time exponential in
the length of a sum.
"""
import json

ZERO, ONE = 0, 1


class Unknowns:
    """Gives out unknowns that were not used before."""

    def __init__(self):
        self.used = 0

    def take(self, count):
        first = self.used + 1
        self.used += count
        return [1 << bit for bit in range(first, first + count)]


def constant(value, width):
    return [value >> bit & 1 for bit in range(width)]


def both(a, b):
    """And."""
    if a == ZERO or b == ZERO:
        return ZERO
    if a is None or b is None:
        return None
    if a == ONE or a == b:
        return b
    if b == ONE:
        return a
    return ZERO if a ^ b == ONE else None


def total(a, b):
    """Exclusive or."""
    return None if a is None or b is None else a ^ b


def negated(a):
    return total(a, ONE)


def chosen(a, b, select):
    """`b` if `select`, else `a`."""
    if a == b or select == ZERO:
        return a
    if select == ONE:
        return b
    return total(a, both(select, total(a, b)))


GATES = {
    "$_NOT_": (negated, "A"),
    "$_AND_": (both, "AB"),
    "$_OR_": (lambda a, b: negated(both(negated(a), negated(b))), "AB"),
    "$_XOR_": (total, "AB"),
    "$_XNOR_": (lambda a, b: negated(total(a, b)), "AB"),
    "$_MUX_": (chosen, "ABS"),
}


class Memory:
    """A RAM with ports that write at the clock and ports that read at once."""

    def __init__(self, cell):
        number = {key: int(value, 2) for key, value in cell["parameters"].items() if set(value) <= {"0", "1"}}
        self.width, self.address, self.first = number["WIDTH"], number["ABITS"], number["OFFSET"]
        assert number["RD_CLK_ENABLE"] == 0, "a port that reads at the clock is not simulated"
        self.words = [[None] * self.width for _ in range(number["SIZE"])]
        ports = cell["connections"]
        self.reads = [
            (self.part(ports["RD_ADDR"], n, self.address), self.part(ports["RD_DATA"], n, self.width))
            for n in range(number["RD_PORTS"])
        ]
        self.writes = [
            tuple(self.part(ports[name], n, width) for name, width in
                  (("WR_EN", self.width), ("WR_ADDR", self.address), ("WR_DATA", self.width)))
            for n in range(number["WR_PORTS"])
        ]

    @staticmethod
    def part(bits, n, width):
        return bits[n * width:(n + 1) * width]

    def read(self, address):
        """The word at an address. Of an unknown address: if the words are an affine function of the address, its value."""
        unknown = [None] * self.width
        if None in address:
            return unknown
        if all(bit in (ZERO, ONE) for bit in address):
            at = self.index(address)
            return self.words[at] if at in range(len(self.words)) else unknown
        if (self.first, len(self.words)) != (0, 1 << self.address):
            return unknown
        base = self.words[0]
        columns = [[total(a, b) for a, b in zip(self.words[1 << i], base)] for i in range(self.address)]

        def affine(bits):
            word = base
            for bit, column in zip(bits, columns):
                word = [total(have, both(bit, add)) for have, add in zip(word, column)]
            return word

        if any(word != affine(constant(at, self.address)) for at, word in enumerate(self.words)):
            return unknown
        return affine(address)

    def index(self, address):
        return sum(bit << i for i, bit in enumerate(address)) - self.first

    def write(self, enable, address, data):
        if any(bit not in (ZERO, ONE) for bit in enable + address) and any(bit != ZERO for bit in enable):
            # It may be any word.
            self.words = [[None] * self.width for _ in self.words]
        elif ONE in enable:
            at = self.index(address)
            self.words[at] = [new if on else old for on, new, old in zip(enable, data, self.words[at])]


class Simulation:
    """A flat netlist of gates, registers and memories as Yosys writes it, after power-up: nothing is known of any register."""

    def __init__(self, path, top):
        module = json.loads(path.read_text())["modules"][top]
        self.ports = module["ports"]
        self.names = {name: net["bits"] for name, net in module["netnames"].items()}
        self.values = {"0": ZERO, "1": ONE, "x": None}
        self.registers, self.memories, gates = [], [], []
        for cell in module["cells"].values():
            kind, wires = cell["type"], cell["connections"]
            if kind in GATES:
                function, pins = GATES[kind]
                gates.append((function, [wires[pin][0] for pin in pins], wires["Y"][0]))
            elif kind == "$_DFF_P_":
                self.registers.append((wires["D"][0], wires["Q"][0]))
            elif kind == "$mem_v2":
                self.memories.append(Memory(cell))
            elif kind != "$scopeinfo":
                raise SystemExit(f"{top} has a cell that is not simulated: {kind}")
        for memory in self.memories:
            gates += [(memory.read, address, data) for address, data in memory.reads]
        self.values.update((q, None) for _, q in self.registers)
        self.gates = self.in_order(gates)

    def in_order(self, gates):
        """Every gate after those whose outputs it has."""
        known = set(self.values) | {bit for port in self.ports.values() if port["direction"] == "input" for bit in port["bits"]}
        order = []
        while gates:
            ready = [gate for gate in gates if all(bit in known for bit in gate[1])]
            assert ready, "the circuit has a loop without a register"
            left = set(map(id, ready))
            gates = [gate for gate in gates if id(gate) not in left]
            order += ready
            known.update(bit for gate in ready for bit in (gate[2] if isinstance(gate[2], list) else [gate[2]]))
        return order

    def cycle(self, **inputs):
        """One cycle. Inputs that are not named are 0. Returns the outputs before the edge."""
        values = self.values
        for name, port in self.ports.items():
            if port["direction"] == "input":
                given = inputs.pop(name, 0)
                bits = constant(given, len(port["bits"])) if isinstance(given, int) else given
                values.update(zip(port["bits"], bits, strict=True))
        assert not inputs, f"no such inputs: {inputs.keys()}"
        for function, pins, output in self.gates:
            if isinstance(output, list):
                values.update(zip(output, function([values[pin] for pin in pins])))
            else:
                values[output] = function(*[values[pin] for pin in pins])
        outputs = {name: [values[bit] for bit in port["bits"]] for name, port in self.ports.items() if port["direction"] == "output"}
        written = [[[values[bit] for bit in bits] for bits in write] for memory in self.memories for write in memory.writes]
        owners = [memory for memory in self.memories for _ in memory.writes]
        values.update([(q, values[d]) for d, q in self.registers])
        for memory, write in zip(owners, written):
            memory.write(*write)
        return outputs

    def register(self, name):
        return [self.values[bit] for bit in self.names[name]]

    def set_register(self, name, bits):
        """Replaces what a register has: with unknowns, whatever is shown then holds for all its values."""
        assert set(self.names[name]) <= {q for _, q in self.registers}, f"{name} is not a register"
        self.values.update(zip(self.names[name], bits, strict=True))
