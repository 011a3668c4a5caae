from ranges import clamp

assert clamp(5, 0, 10) == 5, f"clamp(5, 0, 10) gave {clamp(5, 0, 10)}, wanted 5"
assert clamp(-3, 0, 10) == 0
assert clamp(30, 0, 10) == 10
print("ok")
