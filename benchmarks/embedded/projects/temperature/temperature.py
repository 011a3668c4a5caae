def to_celsius(fahrenheit):
    return (fahrenheit - 32) * 9 / 5


def to_fahrenheit(celsius):
    return celsius * 9 / 5 + 32
