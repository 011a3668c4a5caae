import unittest

from stack import Stack


class Test(unittest.TestCase):
    def test_order(self):
        stack = Stack()
        for item in "abc":
            stack.push(item)
        self.assertEqual(stack.pop(), "c")
        self.assertEqual(stack.pop(), "b")
        self.assertEqual(len(stack), 1)


if __name__ == "__main__":
    unittest.main()
