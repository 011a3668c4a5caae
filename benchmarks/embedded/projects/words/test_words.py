import unittest

from words import count_words


class Test(unittest.TestCase):
    def test_counts(self):
        self.assertEqual(count_words("the cat The dog"), {"the": 2, "cat": 1, "dog": 1})


if __name__ == "__main__":
    unittest.main()
