import unittest

from search import binary_search


class Test(unittest.TestCase):
    def test_found(self):
        for position, value in enumerate([1, 3, 5, 7, 9]):
            self.assertEqual(binary_search([1, 3, 5, 7, 9], value), position)

    def test_missing(self):
        self.assertEqual(binary_search([1, 3, 5], 4), -1)
        self.assertEqual(binary_search([], 4), -1)


if __name__ == "__main__":
    unittest.main()
