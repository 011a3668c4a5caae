import unittest

from dates import days_in_year, is_leap


class Test(unittest.TestCase):
    def test_leap(self):
        self.assertTrue(is_leap(2024))
        self.assertTrue(is_leap(2000))
        self.assertFalse(is_leap(1900))
        self.assertEqual(days_in_year(2023), 365)


if __name__ == "__main__":
    unittest.main()
