from temperature import to_celsius, to_fahrenheit

assert to_fahrenheit(100) == 212
assert to_celsius(212) == 100, f"to_celsius(212) is {to_celsius(212)}, not 100"
print("ok")
