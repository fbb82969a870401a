#!/usr/bin/env python3
"""Shows by the SMT solver z3 that the rules of crates/filter/src/graph/values.rs are equations over 32-bit words.

    pip install z3-solver && scripts/rules.py

Each rule is negated under its condition: a solver that finds no model has shown that the rule holds for all words. Prints one
line for each rule; exit code 1 if one is wrong.
"""

import sys

from z3 import UGE, UGT, ULE, ULT, And, BitVecs, BoolVal, BitVecVal, Implies, LShR, Not, Solver, UDiv, URem, ZeroExt, unsat

v, w, k, m = BitVecs("v w k m", 32)
# Division of 32 bits takes the solver hours; these rules do not depend on the width.
a, b, d = BitVecs("a b d", 12)
ONES = BitVecVal(0xFFFFFFFF, 32)
POWER = And(m != 0, m & (m - 1) == 0)


def wide(word):
    return ZeroExt(32, word)


# Name: the condition under which it is used, the equation.
RULES = {
    "v + 0 = v - 0 = v | 0 = v ^ 0 = v << 0 = v >> 0 = v": (True, And(v + 0 == v, v - 0 == v, v | 0 == v, v ^ 0 == v, v << 0 == v, LShR(v, 0) == v)),
    "v * 1 = v / 1 = v": (True, And(v * 1 == v, UDiv(v, BitVecVal(1, 32)) == v)),
    "v & ones = v": (True, v & ONES == v),
    "v * 0 = v & 0 = v % 1 = 0": (True, And(v * 0 == 0, v & 0 == 0, URem(v, BitVecVal(1, 32)) == 0)),
    "(v & m) & k = v & (m & k)": (True, (v & m) & k == v & (m & k)),
    "a + b, a * b, a | b, a & b, a ^ b commute": (True, And(v + w == w + v, v * w == w * v, v | w == w | v, v & w == w & v, v ^ w == w ^ v)),
    "v - w = 0 is v = w": (True, (v - w == 0) == (v == w)),
    "v + m = k is v = k - m": (True, (v + m == k) == (v == k - m)),
    "v - m = k is v = k + m": (True, (v - m == k) == (v == k + m)),
    "v ^ m = k is v = k ^ m": (True, (v ^ m == k) == (v == k ^ m)),
    "v & m = k never holds if k has a bit outside of m": (k & ~m != 0, v & m != k),
    "v & m = 0 is no bit of m in v": (True, (v & m == 0) == Not(v & m != 0)),
    "v & m = m is a bit of m in v, if m is one bit": (POWER, (v & m == m) == (v & m != 0)),
    "k > v is not v >= k": (True, UGT(k, v) == Not(UGE(v, k))),
    "k >= v is not v > k": (True, UGE(k, v) == Not(UGT(v, k))),
    "v = v, v >= v, not v > v": (True, And(v == v, UGE(v, v), Not(UGT(v, v)))),
    "(v + m) + k = v + (m + k) in 64 bits, if v + m and m + k do not wrap": (
        And(ULE(wide(v) + wide(m), wide(ONES)), ULE(wide(m) + wide(k), wide(ONES))),
        wide(v + m) + wide(k) == wide(v) + wide(m + k),
    ),
    # Facts (crates/filter/src/simplify/facts.rs).
    "v >= its bits that are set": (v & m == m, UGE(v, m)),
    "v <= all bits but those that are clear": (v & m == 0, ULE(v, ~m)),
    "a bit of m in v, if m is one bit, is set": (And(POWER, v & m != 0), v & m == m),
    "a bit of m in v: v is not 0": (v & m != 0, v != 0),
    "a >> k keeps the order": (And(ULE(v, w), ULT(k, 32)), ULE(LShR(v, k), LShR(w, k))),
    "a / k keeps the order": (And(ULE(a, b), d != 0), ULE(UDiv(a, d), UDiv(b, d))),
    "a % k <= k - 1": (d != 0, ULE(URem(a, d), d - 1)),
    "v & k <= v and <= k": (True, And(ULE(v & k, v), ULE(v & k, k))),
    "bits below a shift to the left are clear": (ULT(k, 32), (v << k) & ~(ONES << k) == 0),
}


def main():
    wrong = 0
    for name, (condition, equation) in RULES.items():
        solver = Solver()
        solver.add(Not(Implies(BoolVal(True) if condition is True else condition, equation)))
        holds = solver.check() == unsat
        wrong += not holds
        print(f"{'holds' if holds else 'WRONG'}  {name}")
    print(f"{len(RULES)} rules, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
