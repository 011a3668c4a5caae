import unittest

from slug import slugify


class Test(unittest.TestCase):
    def test_slug(self):
        self.assertEqual(slugify("Hello, World!"), "hello-world")
        self.assertEqual(slugify("a  B c"), "a-b-c")


if __name__ == "__main__":
    unittest.main()
