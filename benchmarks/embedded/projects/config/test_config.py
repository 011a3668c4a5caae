import unittest

from config import parse


class Test(unittest.TestCase):
    def test_plain(self):
        self.assertEqual(parse("a = 1\n# no\n\nb=2"), {"a": "1", "b": "2"})

    def test_value_with_equals_sign(self):
        self.assertEqual(parse("url = http://x/?a=b"), {"url": "http://x/?a=b"})


if __name__ == "__main__":
    unittest.main()
