"""Infer the types of tuples, and which element of a tuple each get-tuple-element reads.

A reader of a tuple is a get-tuple-element; its index is the number of the element that it reads.
The features of a tuple give only its number of elements. The elements' types follow from the
tuple's operands or its readers. If several elements have the same type, the n-th reader of that
type reads the n-th such element.

The state of a loop is the tuple that the loop's body takes and returns. An element's next value is
the node that the body returns for it. A reader of the state is assigned the element of its type for
which the path from the reader to the next value has the fewest edges.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from solution.collecting.lifting.draft import PRED, S32, TOKEN, TUPLE, Draft
from solution.collecting.lifting.operand_order import order_results

# maximum number of edges between the reader of a loop state's element and the element's next value
NEAR = 6
SEEN = 64  # maximum number of nodes that such a search visits
READ = "get-tuple-element"


class Tensor(NamedTuple):
    """The type of a tensor or a token."""

    kind: int
    sizes: tuple[int, ...]
    layout: tuple[int, ...]

    @property
    def key(self) -> tuple[int, tuple[int, ...], int]:
        return self.kind, self.sizes, 0


class Parts(NamedTuple):
    """The type of a tuple: the types of its elements."""

    parts: tuple["Type", ...]

    @property
    def key(self) -> tuple[int, tuple[int, ...], int]:
        return TUPLE, (), len(self.parts)


Type = Tensor | Parts
TOKEN_TYPE = Tensor(TOKEN, (), ())
# assumed type of a tuple's element that nothing reads
UNREAD = Tensor(S32, (), ())
# opcodes whose result has the type of their operand, or is a tuple of their operands' types
PASSED = ("opt-barrier", "add-dependency", "copy", "all-reduce")
LACKING = "it has no element of a type that its loop needs"


class Loop(NamedTuple):
    """A while loop: its condition, body and counter, and the elements that never change."""

    node: int
    condition: int  # root node of the condition
    body: int  # root node of the body
    counter: int | None  # index of the element that counts the iterations, if found
    fixed: frozenset[int] = frozenset()  # indices of elements that the body returns unchanged


class TupleTypes:
    """Infers the types of all tuples; sorts the tuples' operands, and repeats missing ones."""

    def __init__(self, draft: Draft, operands: list[list[int]]) -> None:
        self._draft = draft
        self.operands = operands  # operands of each node, in order; this class changes them
        self.index: dict[int, int] = {}  # {get-tuple-element: index of the element that it reads}
        self.loops: dict[int, Loop] = {}  # {node of a while instruction: its loop}
        self._types: dict[int, Type] = {}
        # nodes whose type is being inferred, to stop endless recursion
        self._open: set[int] = set()

    def resolve(self) -> None:
        """Infer types of tuples and indices of their readers, or raise NotLiftedError."""
        draft = self._draft
        for node, opcode in enumerate(draft.opcodes):
            if opcode == "while":
                self._resolve_loop(node)
        for node, kind in enumerate(draft.kinds):
            if kind == TUPLE:
                self.type_of(node)
        for node in range(len(draft.opcodes)):
            if draft.kinds[node] == TUPLE:
                self._number_readers(node)
        for node, opcode in enumerate(draft.opcodes):
            if opcode == READ and node not in self.index:
                raise draft.refuse(node, "it reads no tuple")

    def type_of(self, node: int) -> Type:
        """Return a node's type; infer it first if the node is a tuple."""
        draft = self._draft
        if draft.kinds[node] != TUPLE:
            return Tensor(draft.kinds[node], draft.sizes[node], draft.layouts[node])
        if node not in self._types:
            if node in self._open:
                return self._read_from_readers(node)
            self._open.add(node)
            self._types[node] = self._find(node)
            self._open.discard(node)
        return self._types[node]

    def _find(self, node: int) -> Type:
        draft, opcode = self._draft, self._draft.opcodes[node]
        operands = self.operands[node]
        if opcode == "tuple":
            self._fill(node)
            return Parts(tuple(self.type_of(one) for one in self.operands[node]))
        if opcode == "parameter":
            return self._find_parameter(node)
        if opcode == "while":
            return self.type_of(self.loops[node].body)
        if opcode in ("call", "fusion") and draft.called[node]:
            return self.type_of(draft.called[node][0])
        if opcode == READ:
            return self._find_element(node)
        if opcode in PASSED and len(operands) == 1:
            return self.type_of(operands[0])
        if opcode in PASSED or opcode == "sort":
            return Parts(tuple(self.type_of(one) for one in operands))
        if opcode == "infeed":
            return self._find_infeed(node)
        if opcode in ("reduce", "reduce-window"):
            return self._find_reduction(node)
        return self._read_from_readers(node)

    def _find_element(self, node: int) -> Type:
        """Return the type of a tuple that is an element of another tuple: by the outer tuple's type
        or, if that is not known, by the element's readers."""
        (outer,) = self.operands[node]
        if self._draft.opcodes[outer] == "infeed" or outer in self._open:
            return self._read_from_readers(node)
        whole = self.type_of(outer)
        self._number_readers(outer)
        index = self.index.get(node)
        if isinstance(whole, Parts) and index is not None:
            return whole.parts[index]
        return self._read_from_readers(node)

    def _find_parameter(self, node: int) -> Type:
        """Return a tuple parameter's type: the type of the caller's argument, or of the loop's
        state; without a caller, the type that the readers show."""
        draft = self._draft
        caller = draft.callers.get(draft.computation[node])
        if caller is None:
            return self._read_from_readers(node)
        if draft.opcodes[caller] == "while":
            return self.type_of(self.loops[caller].body)
        given, number = self.operands[caller], draft.numbers[node]
        return self.type_of(given[number]) if number < len(given) else UNREAD

    def _find_infeed(self, node: int) -> Type:
        """Return the type of an infeed: a tuple of the data and a token."""
        data: Type = UNREAD
        for reader in self._readers(node):
            is_token = self._draft.kinds[reader] == TOKEN
            self.index[reader] = int(is_token)
            if not is_token:
                data = self.type_of(reader)
        return Parts((data, TOKEN_TYPE))

    def _find_reduction(self, node: int) -> Type:
        """Return the type of a reduction of several tensors: a tuple of one result per tensor, with
        the tensor's element type and the sizes that remain."""
        draft = self._draft
        tensors = self.operands[node][: draft.parts[node]]
        sizes = draft.sizes[tensors[0]]
        gone = {axis for axis in draft.features[node, 31:37].tolist() if axis >= 0}
        left = tuple(size for axis, size in enumerate(sizes) if axis not in gone)
        readers = [one for one in self._readers(node) if draft.kinds[one] != TUPLE]
        if readers:  # all elements have the sizes and layout of the first reader
            left, layout = draft.sizes[readers[0]], draft.layouts[readers[0]]
        else:
            layout = tuple(range(len(left)))[::-1]
        return Parts(tuple(Tensor(draft.kinds[one], left, layout) for one in tensors))

    def _read_from_readers(self, node: int) -> Type:
        """Return a tuple's type by its readers: assume that the n-th reader reads element n."""
        draft = self._draft
        readers = self._readers(node)[: draft.parts[node]]
        parts = [self.type_of(reader) for reader in readers]
        self.index |= {reader: index for index, reader in enumerate(readers)}
        missing = draft.parts[node] - len(parts)
        if missing > 0:
            draft.guesses.add("type of unread elements of a tuple", node)
        return Parts((*parts, *[UNREAD] * missing))

    def _readers(self, node: int) -> list[int]:
        draft = self._draft
        return [one for one in draft.users[node] if draft.opcodes[one] == READ]

    def _find_caller(self, node: int) -> int | None:
        """Return the call of the computation whose root is `node`; None if there is none."""
        draft = self._draft
        computation = draft.computation[node]
        caller = draft.callers.get(computation) if draft.roots[computation] == node else None
        return caller if caller is not None and draft.opcodes[caller] == "call" else None

    def _fill(self, node: int) -> None:
        """Repeat operands of a tuple, in place, until their number is as the features say. Operands
        of types that have more readers than operands are repeated first. Before that, sort the
        operands if a call returns the tuple (order_results)."""
        draft, found = self._draft, self.operands[node]
        if self._find_caller(node) is not None:
            order_results(draft, found)
        missing = draft.parts[node] - len(found)
        if missing > 0 and not found:
            raise draft.refuse(node, "no edge says what its elements are")
        if missing > 0:
            draft.guesses.add("repeated element of a tuple", node)
            caller = self._find_caller(node)
            tuples = [node] if caller is None else [node, caller]
            read = Counter(draft.key(one) for whole in tuples for one in self._readers(whole))
            read.subtract(Counter(draft.key(one) for one in found))
            wanted = [key for key, count in read.items() for _ in range(count)]
            again = [one for key in wanted for one in found if draft.key(one) == key]
            for one in [*again, *[found[-1]] * missing][:missing]:
                found.insert(found.index(one), one)

    def _number_readers(self, node: int) -> None:
        """Assign an element of the reader's type to each reader of the tuple that has none yet."""
        whole = self.type_of(node)
        readers = [one for one in self._readers(node) if one not in self.index]
        if readers and isinstance(whole, Parts):
            # assign unchanged elements last, because most readers of a loop read changed ones
            fixed = self.loops[node].fixed if node in self.loops else ()
            # A call's result begins with the function's results; values for its gradient follow.
            if self._draft.opcodes[node] == "call":
                readers.sort(key=self._draft.is_kept)
            self._give(node, readers, [part.key for part in whole.parts], set(fixed))

    def _give(
        self, node: int, readers: Iterable[int], keys: Sequence[object], taken: set[int]
    ) -> None:
        """Assign an element of the tuple `node` to each reader: the n-th reader of a type gets the
        n-th element of this type. `keys`: the elements' types. `taken`: elements that are assigned
        only if no other element has the type."""
        draft = self._draft
        free: dict[object, list[int]] = defaultdict(list)
        for index, key in enumerate(keys):
            if index not in taken:
                free[key].append(index)
        used: Counter[object] = Counter()
        for reader in readers:
            key = draft.key(reader)
            fitting = free[key] or [index for index, other in enumerate(keys) if other == key]
            if not fitting:
                raise draft.refuse(reader, f"node {node} has no element of its type and sizes")
            if len(fitting) > 1:
                draft.guesses.add("index of get-tuple-element", reader)
            self.index[reader] = fitting[used[key] % len(fitting)]
            used[key] += 1

    def _resolve_loop(self, node: int) -> None:
        """Infer a loop's counter, the order of the elements of its state, and the element that each
        reader reads. The initial tuple gets the order of the tuple that the body returns."""
        draft = self._draft
        is_flag = [draft.key(root) == (PRED, (), 0) for root in draft.called[node]]
        if sorted(is_flag) != [False, True]:
            raise draft.refuse(node, "no edge says which computation is its condition")
        condition, body = (draft.called[node][is_flag.index(flag)] for flag in (True, False))
        draft.called[node][:] = [body, condition]  # XLA's order: body, then condition
        self.loops[node] = Loop(node, condition, body, None)
        if draft.opcodes[body] != "tuple":
            return
        self._order_by_start(node, body)
        keys = [draft.key(one) for one in self.operands[body]]
        (parameter,) = draft.parameters(body)
        self._match_state(parameter, self.operands[body], keys)
        counter = self._find_counter(parameter, self.operands[body])
        fixed = frozenset(
            index
            for index, result in enumerate(self.operands[body])
            if self.index.get(result) == index and draft.operands[result] == [parameter]
        )
        self.loops[node] = Loop(node, condition, body, counter, fixed)
        self._read_counter(condition, counter, keys)
        (start,) = self.operands[node]
        if draft.opcodes[start] == "tuple":
            draft.guesses.add("order of a loop's state", start)
            self._order_start(self.loops[node], keys)

    def _order_by_start(self, node: int, body: int) -> None:
        """Add missing elements to the body's tuple. If the loop's initial value is neither a tuple
        instruction nor a parameter, order the body's tuple by the types of the initial value."""
        draft = self._draft
        self._complete_state(node, body)
        (start,) = self.operands[node]
        if draft.opcodes[start] in ("tuple", "parameter"):
            return
        whole = self.type_of(start)
        if isinstance(whole, Parts):
            self._reorder(body, [part.key for part in whole.parts])

    def _complete_state(self, node: int, body: int) -> None:
        """Repeat elements of the tuple that the body returns until it is complete. Begin with types
        that have more readers or initial values than elements."""
        draft, found = self._draft, self.operands[body]
        missing = draft.parts[body] - len(found)
        if missing <= 0:
            return
        draft.guesses.add("repeated element of a loop's state", body)
        (parameter,) = draft.parameters(body)
        have = Counter(draft.key(one) for one in found)
        need: Counter[object] = Counter()
        for tuples in (parameter, node):
            need |= Counter(draft.key(one) for one in self._readers(tuples))
        need |= Counter(draft.key(one) for one in self.operands[self.operands[node][0]])
        need.subtract(have)
        wanted = [key for key, count in need.items() for _ in range(count)]
        again = [next((one for one in found if draft.key(one) == key), None) for key in wanted]
        added = [one for one in again if one is not None]
        if not found:
            raise draft.refuse(body, "no edge says what its elements are")
        found += [*added, *[found[-1]] * missing][:missing]

    def _reorder(self, node: int, keys: Sequence[object]) -> None:
        """Order a tuple's operands so that their types are `keys`; if too few operands have a type,
        repeat the last one that has it."""
        draft = self._draft
        pool: dict[object, list[int]] = defaultdict(list)
        for one in self.operands[node]:
            pool[draft.key(one)].append(one)
        ordered = []
        for key in keys:
            fitting = pool[key]
            if not fitting:
                raise draft.refuse(node, LACKING)
            ordered.append(fitting.pop(0) if len(fitting) > 1 else fitting[0])
        self.operands[node][:] = ordered

    def _order_start(self, loop: Loop, keys: Sequence[object]) -> None:
        """Order a loop's initial values like its body's tuple. Among values of one type, constants
        go to elements that change (the counter, then elements that slices are written into), other
        values to unchanged elements. If values are missing, a constant is repeated."""
        draft = self._draft
        (start,) = self.operands[loop.node]
        pool: dict[object, list[int]] = defaultdict(list)
        for one in dict.fromkeys(self.operands[start]):
            pool[draft.key(one)].append(one)
        elements: dict[object, list[int]] = defaultdict(list)
        for index, key in enumerate(keys):
            elements[key].append(index)
        if any(len(elements[key]) < len(operands) for key, operands in pool.items()):
            raise draft.refuse(start, "it has elements that its loop does not have")
        ordered: dict[int, int] = {}
        for key, indices in elements.items():
            if not pool[key]:
                raise draft.refuse(start, LACKING)
            indices.sort(key=lambda index: self._rank_start(loop, index))
            values = [one for one in pool[key] if draft.find_constant(one) is None]
            constants = [one for one in pool[key] if one not in values]
            repeated = constants[:1] or values[-1:]
            constants = repeated * (len(indices) - len(pool[key])) + constants
            if loop.counter in indices:
                constants.reverse()  # so that the counter starts with the first constant
            ordered |= dict(zip(indices, values + constants, strict=True))
        self.operands[start][:] = [ordered[index] for index in range(len(keys))]

    def _rank_start(self, loop: Loop, index: int) -> int:
        """Return how likely it is that the initial value of the state's element `index` is a
        constant, from 0 (unlikely) to 3."""
        if index == loop.counter:
            return 3
        if index in loop.fixed:
            return 0
        draft, node = self._draft, self.operands[loop.body][index]
        while draft.opcodes[node] == "call" and draft.called[node]:
            node = draft.called[node][0]
        return 2 if draft.opcodes[node] == "dynamic-update-slice" else 1

    def _match_state(self, parameter: int, results: Sequence[int], keys: Sequence[object]) -> None:
        """Assign an element of a loop's state to each reader of the body's `parameter`: among the
        elements of the reader's type (`keys`), the element whose next value (in `results`) is the
        fewest edges away."""
        draft = self._draft
        nearest: dict[int, int] = {}  # {reader: index of the element assigned to it}
        steps = sorted(
            (distance, reader, index)
            for index, result in enumerate(results)
            for reader, distance in self._look_back(result, parameter).items()
            if draft.key(reader) == keys[index]
        )
        taken: set[int] = set()
        for _, reader, index in steps:
            if reader not in nearest and index not in taken:
                nearest[reader] = index
                taken.add(index)
        self.index |= nearest
        draft.guesses.nodes.setdefault("element of a loop's state, by distance", []).extend(nearest)
        rest = [one for one in self._readers(parameter) if one not in nearest]
        self._give(parameter, rest, keys, taken)

    def _look_back(self, result: int, parameter: int) -> dict[int, int]:
        """Return {reader of `parameter` from which `result` is computed: its distance from `result`
        in edges}, for distances of at most NEAR."""
        draft = self._draft
        found: dict[int, int] = {}
        distance, waiting = {result: 0}, deque([result])
        while waiting and len(distance) < SEEN:
            node = waiting.popleft()
            if draft.opcodes[node] == READ and draft.operands[node] == [parameter]:
                found[node] = distance[node]
                continue
            for one in draft.operands[node] if distance[node] < NEAR else ():
                if one not in distance:
                    distance[one] = distance[node] + 1
                    waiting.append(one)
        return found

    def _find_counter(self, parameter: int, results: Sequence[int]) -> int | None:
        """Return the index of a scalar element to which the body adds a constant; None if none."""
        draft = self._draft
        for index, result in enumerate(results):
            read = draft.operands[result]
            if draft.opcodes[result] == "add" and not draft.sizes[result] and len(read) == 2:
                current = [one for one in read if self.index.get(one) == index]
                step = [one for one in read if draft.opcodes[one] == "constant"]
                if current and step and draft.operands[current[0]] == [parameter]:
                    return index
        return None

    def _read_counter(self, condition: int, counter: int | None, keys: Sequence[object]) -> None:
        """Assign elements of the loop's state to the condition's readers, the counter first."""
        draft = self._draft
        for parameter in draft.parameters(condition):
            readers, taken = self._readers(parameter), set[int]()
            key = None if counter is None else keys[counter]
            first = next((one for one in readers if draft.key(one) == key), None)
            if first is not None and counter is not None:
                self.index[first] = counter
                readers.remove(first)
                taken.add(counter)
            self._give(parameter, readers, keys, taken)
