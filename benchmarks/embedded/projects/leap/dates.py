def is_leap(year):
    """Leap years are divisible by 4, but full centuries only if divisible by 400."""
    if year % 400 == 0:
        return True
    return year % 4 == 0 and year % 100 == 0


def days_in_year(year):
    return 366 if is_leap(year) else 365
