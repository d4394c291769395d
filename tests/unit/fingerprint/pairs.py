"""Pairs of small programs whose function `f` is the same, or is not."""

# ruff: noqa: E501 (a program reads better in one line)

SAME = {
    "formatting": ("def f(x): return g( x,1 )\ndef g(a, b): return a", "def f(x):\n\n  return g(x, 1)\ndef g(a,b):\n return (a)"),
    "comments": ("def f(x):\n    return x", "# above\n\ndef f(x):  # beside\n    # inside\n    return x"),
    "a docstring": ("def f(x):\n    return x", "def f(x):\n    'Says something.'\n    return x"),
    "annotations": ("def f(x):\n    y = 1\n    return y", "def f(x: int) -> 'int':\n    y: int = 1\n    return y"),
    "quotes": ("def f(x): return 'a' + \"b\"", "def f(x): return \"a\" + 'b'"),
    "a local variable": ("def f(x):\n    a = x\n    return a + 1", "def f(x):\n    total = x\n    return total + 1"),
    "a loop variable": ("def f(x): return [a + 1 for a in x]", "def f(x): return [b + 1 for b in x]"),
    "a captured variable": (
        "def make(n):\n    def f(x): return x + n\n    return f\nf = make(3)",
        "def make(n):\n    k = n\n    def f(x): return x + k\n    return f\nf = make(3)",
    ),
    "an exception's name": (
        "def f(x):\n    try: return x\n    except ValueError as e: return str(e)",
        "def f(x):\n    try: return x\n    except ValueError as oh: return str(oh)",
    ),
    "something that is not used": ("def f(x): return x", "OTHER = 5\ndef other(): pass\ndef f(x): return x"),
    "the order of definitions": (
        "def g(x): return x\ndef h(x): return 2\ndef f(x): return g(h(x))",
        "def f(x): return g(h(x))\ndef h(x): return 2\ndef g(x): return x",
    ),
    "the order of a set": ("S = {'a', 'b', 'c'}\ndef f(x): return x in S", "S = {'c', 'a', 'b'}\ndef f(x): return x in S"),
    "an object without a value": ("A = object()\ndef f(x): return A", "A = object()\ndef f(x): return A"),
    "where the program is": (
        "from pathlib import Path\nHERE = Path(__file__).parent / 'data'\ndef f(x): return HERE",
        "# moved\nfrom pathlib import Path\nHERE = Path(__file__).parent / 'data'\ndef f(x): return HERE",
    ),
    "a lambda beside another": ("f, g = lambda x: x + 1, lambda x: x + 2", "h, f = lambda x: x + 3, lambda x: x + 1"),
    "a dataclass written anew": (
        "from dataclasses import dataclass\n@dataclass\nclass C:\n    a: int = 1\nc = C(2)\ndef f(x): return c.a",
        "from dataclasses import dataclass\n@dataclass\nclass C:\n    'A thing.'\n\n    a: int = 1\nc = C(a=2)\ndef f(x): return c.a",
    ),
    "functions in a set": ("def g(x): return 1\ndef h(x): return 2\nS = {g, h}\ndef f(x): return S", "def g(x): return 1\ndef h(x): return 2\nS = {h, g}\ndef f(x): return S"),
    "recursion": ("def f(x): return f(x - 1) if x else g(x)\ndef g(x): return f(x)",) * 2,
    "a value inside of itself": ("L = [1]\nL.append(L)\ndef f(x): return L",) * 2,
    "a constant that its class writes with an address": ("class N(int):\n    __repr__ = object.__repr__\nn = N(1)\ndef f(x): return n",) * 2,
    "a time zone of the user": (
        "from datetime import datetime, timedelta, tzinfo\nclass Z(tzinfo):\n    def utcoffset(self, at): return timedelta(0)\n"
        "z, t = Z(), datetime(2020, 1, 1, tzinfo=Z())\ndef f(x): return z, t",
    )
    * 2,
    "a slice of objects": ("class C: pass\ns = slice(C(), None, C())\ndef f(x): return s",) * 2,
    "random numbers": ("import random\nr = random.Random()\ndef f(x): return r.random()",) * 2,
    "what the process was given": ("from os import environ\nimport threading\nl = threading.Lock()\ndef f(x): return environ, l",) * 2,
    "what a function with several types has remembered": (
        "import functools\n@functools.singledispatch\ndef g(x): return 1\ndef f(x): return g(x)",
        "import collections.abc, functools\n@functools.singledispatch\ndef g(x): return 1\ng(5)\ndef f(x): return g(x)",
    ),
    "annotations of a function on tables": (
        "import pandas as pd\ndef f(rows): return rows", "import pandas as pd\ndef f(rows: pd.DataFrame) -> pd.DataFrame: return rows",
    ),
    "how an annotation of a UDF is written": (
        "import pandas as pd\ndef f(x: pd.Series) -> 'pd.Series': return x", "from pandas import Series\ndef f(x: Series) -> Series: return x",
    ),
    "options of a dataclass that newer versions of Python have": (
        "from dataclasses import dataclass\n@dataclass\nclass C:\n    a: int\ndef f(x): return C",
        "import dataclasses\nfrom dataclasses import dataclass\n@dataclass\nclass C:\n    a: int\nclass P:\n    slots = True\n"
        "for n in ('init', 'repr', 'eq', 'order', 'unsafe_hash', 'frozen'): setattr(P, n, getattr(C.__dataclass_params__, n))\n"
        "C.__dataclass_params__ = P()\nC.__replace__ = dataclasses.replace\ndef f(x): return C",
    ),
    "what typing puts into protocols": (
        "from typing import Protocol\nclass P(Protocol):\n    def g(self): ...\ndef f(x): return P",
        "from typing import Protocol\nclass P(Protocol):\n    def g(self): ...\nP.__protocol_attrs__ = {'g'}\nP._is_runtime_protocol = False\ndef f(x): return P",
    ),
    "lists inside of each other": ("L = []\nfor _ in range(3000): L = [L]\ndef f(x): return L",) * 2,
    "how an annotation of a class is written": (
        "from dataclasses import dataclass\nfrom typing import List, Optional\n@dataclass\nclass C:\n    a: Optional[List[int]] = None\ndef f(x): return C",
        "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass C:\n    a: list[int] | None = None\ndef f(x): return C",
    ),
    "an annotation with an object without a value": (
        "from typing import Annotated, TypeVar\nT = TypeVar('T')\nclass C:\n    a: Annotated[T, object(), {'a', 'b'}]\n    b: 'Unknown[1]'\ndef f(x): return C",
    )
    * 2,
    "a released view": ("V = memoryview(b'a')\nV.release()\ndef f(x): return V",) * 2,
    "how annotations of a class inside are written": (
        "from dataclasses import dataclass\ndef f(x):\n    @dataclass\n    class C:\n        a: int\n    y: int = 1\n    return C, y",
        "from dataclasses import dataclass\ndef f(x):\n    @dataclass\n    class C:\n        'One.'\n        a: 'int'\n    y = 1\n    return C, y",
    ),
}  # fmt: skip

DIFFERENT = {
    "a constant": ("def f(x): return x + 1", "def f(x): return x + 2"),
    "the type of a constant": ("def f(x): return 1", "def f(x): return 1.0"),
    "a text": ("def f(x): return 'sum'", "def f(x): return 'max'"),
    "an attribute": ("import math\ndef f(x): return math.floor(x)", "import math\ndef f(x): return math.ceil(x)"),
    "what a name means": (
        "from math import floor as r\ndef f(x): return r(x)",
        "from math import ceil as r\ndef f(x): return r(x)",
    ),
    "a module's alias": ("import json as m\ndef f(x): return m.dumps(x)", "import pickle as m\ndef f(x): return m.dumps(x)"),
    "two local variables swapped": (
        "def f(x):\n    a, b = x\n    return a - b", "def f(x):\n    a, b = x\n    return b - a",
    ),
    "a parameter's name": ("def f(a, b): return a - b", "def f(b, a): return b - a"),
    "a default": ("N = 1\ndef f(x, n=N): return n", "N = 2\ndef f(x, n=N): return n"),
    "a keyword default": ("N = 1\ndef f(x, *, n=N): return n", "N = 2\ndef f(x, *, n=N): return n"),
    "a global": ("LIMIT = 3\ndef f(x): return x > LIMIT", "LIMIT = 4\ndef f(x): return x > LIMIT"),
    "a captured value": (
        "def make(n):\n    def f(x): return x + n\n    return f\nf = make(3)",
        "def make(n):\n    def f(x): return x + n\n    return f\nf = make(4)",
    ),
    "a called function": ("def g(x): return 1\ndef f(x): return g(x)", "def g(x): return 2\ndef f(x): return g(x)"),
    "a function two calls away": (
        "def h(x): return 1\ndef g(x): return h(x)\ndef f(x): return g(x)",
        "def h(x): return 2\ndef g(x): return h(x)\ndef f(x): return g(x)",
    ),
    "a called function of a nested one": (
        "def g(x): return 1\ndef f(x):\n    def inner(y): return g(y)\n    return inner",
        "def g(x): return 2\ndef f(x):\n    def inner(y): return g(y)\n    return inner",
    ),
    "a lambda": ("g = lambda x: x + 1\ndef f(x): return g(x)", "g = lambda x: x + 2\ndef f(x): return g(x)"),
    "which lambda of a line": ("f, g = lambda x: x + 1, lambda x: x + 2", "g, f = lambda x: x + 1, lambda x: x + 2"),
    "a partial's argument": (
        "from functools import partial\ndef g(x, n): return n\nh = partial(g, n=1)\ndef f(x): return h(x)",
        "from functools import partial\ndef g(x, n): return n\nh = partial(g, n=2)\ndef f(x): return h(x)",
    ),
    "what a decorator captures": (
        "import functools\ndef times(n):\n    def around(g):\n        @functools.wraps(g)\n"
        "        def h(x): return g(x) * n\n        return h\n    return around\n@times(2)\ndef f(x): return x",
        "import functools\ndef times(n):\n    def around(g):\n        @functools.wraps(g)\n"
        "        def h(x): return g(x) * n\n        return h\n    return around\n@times(3)\ndef f(x): return x",
    ),
    "a decorated function": (
        "import functools\ndef d(g):\n    @functools.wraps(g)\n    def h(x): return g(x)\n    return h\n@d\ndef f(x): return 1",
        "import functools\ndef d(g):\n    @functools.wraps(g)\n    def h(x): return g(x)\n    return h\n@d\ndef f(x): return 2",
    ),
    "a cached function": (
        "import functools\n@functools.cache\ndef g(x): return 1\ndef f(x): return g(x)",
        "import functools\n@functools.cache\ndef g(x): return 2\ndef f(x): return g(x)",
    ),
    "a method": (
        "class P:\n    def handle(self): return 1\ndef f(x): return P()",
        "class P:\n    def handle(self): return 2\ndef f(x): return P()",
    ),
    "a method of a base class": (
        "class B:\n    def handle(self): return 1\nclass P(B): pass\ndef f(x): return P()",
        "class B:\n    def handle(self): return 2\nclass P(B): pass\ndef f(x): return P()",
    ),
    "a static method": (
        "class P:\n    @staticmethod\n    def handle(): return 1\ndef f(x): return P()",
        "class P:\n    @staticmethod\n    def handle(): return 2\ndef f(x): return P()",
    ),
    "a property": (
        "class P:\n    @property\n    def a(self): return 1\ndef f(x): return P().a",
        "class P:\n    @property\n    def a(self): return 2\ndef f(x): return P().a",
    ),
    "an attribute of a class": ("class P:\n    A = 1\ndef f(x): return P.A", "class P:\n    A = 2\ndef f(x): return P.A"),
    "what a method calls": (
        "def g(): return 1\nclass P:\n    def handle(self): return g()\ndef f(x): return P()",
        "def g(): return 2\nclass P:\n    def handle(self): return g()\ndef f(x): return P()",
    ),
    "an object's attribute": (
        "class P:\n    def __init__(self, n): self.n = n\np = P(1)\ndef f(x): return p.n",
        "class P:\n    def __init__(self, n): self.n = n\np = P(2)\ndef f(x): return p.n",
    ),
    "a dataclass's field": (
        "from dataclasses import dataclass\n@dataclass\nclass C:\n    a: int\nc = C(1)\ndef f(x): return c.a",
        "from dataclasses import dataclass\n@dataclass\nclass C:\n    a: int\nc = C(2)\ndef f(x): return c.a",
    ),
    "a bound method": (
        "class P:\n    def __init__(self, n): self.n = n\n    def g(self): return self.n\ng = P(1).g\ndef f(x): return g()",
        "class P:\n    def __init__(self, n): self.n = n\n    def g(self): return self.n\ng = P(2).g\ndef f(x): return g()",
    ),
    "a value in a dictionary": ("W = {'a': 1}\ndef f(x): return W", "W = {'a': 2}\ndef f(x): return W"),
    "a function in a dictionary": (
        "def g(x): return 1\nW = {'a': g}\ndef f(x): return W", "def g(x): return 2\nW = {'a': g}\ndef f(x): return W",
    ),
    "a member of a set": ("S = {'a', 'b'}\ndef f(x): return S", "S = {'a', 'c'}\ndef f(x): return S"),
    "the order of a list": ("S = [1, 2]\ndef f(x): return S", "S = [2, 1]\ndef f(x): return S"),
    "a pattern": ("import re\nP = re.compile('a')\ndef f(x): return P", "import re\nP = re.compile('b')\ndef f(x): return P"),
    "a decimal": (
        "from decimal import Decimal\nP = Decimal('1.0')\ndef f(x): return P",
        "from decimal import Decimal\nP = Decimal('1.1')\ndef f(x): return P",
    ),
    "an enumeration": (
        "import enum\nclass E(enum.Enum):\n    A = 1\n    B = 2\ne = E.A\ndef f(x): return e",
        "import enum\nclass E(enum.Enum):\n    A = 1\n    B = 2\ne = E.B\ndef f(x): return e",
    ),
    "the end of a long list": ("L = [*range(999), 1]\ndef f(x): return L", "L = [*range(999), 2]\ndef f(x): return L"),
    "a method of an enumeration": (
        "import enum\nclass E(enum.Enum):\n    A = 1\n    def g(self): return 1\ndef f(x): return E.A.g()",
        "import enum\nclass E(enum.Enum):\n    A = 1\n    def g(self): return 2\ndef f(x): return E.A.g()",
    ),
    "an array": (
        "import numpy as np\nA = np.array([1, 2])\ndef f(x): return A", "import numpy as np\nA = np.array([1, 3])\ndef f(x): return A",
    ),
    "an item getter": (
        "import operator\ng = operator.itemgetter(1)\ndef f(x): return g(x)",
        "import operator\ng = operator.itemgetter(2)\ndef f(x): return g(x)",
    ),
    "a UDF": (
        "from pyspark.sql import functions as F\nfrom pyspark.sql.types import LongType\n@F.udf(LongType())\n"
        "def g(x): return x + 1\ndef f(rows): return g('a')",
        "from pyspark.sql import functions as F\nfrom pyspark.sql.types import LongType\n@F.udf(LongType())\n"
        "def g(x): return x + 2\ndef f(rows): return g('a')",
    ),
    "the type of a UDF": (
        "from pyspark.sql import functions as F\nfrom pyspark.sql.types import LongType as T\n@F.udf(T())\n"
        "def g(x): return x\ndef f(rows): return g('a')",
        "from pyspark.sql import functions as F\nfrom pyspark.sql.types import StringType as T\n@F.udf(T())\n"
        "def g(x): return x\ndef f(rows): return g('a')",
    ),
    "what a pandas UDF calls": (
        "import pandas as pd\nfrom pyspark.sql import functions as F\nfrom pyspark.sql.types import LongType\n"
        "def h(x): return x + 1\n@F.pandas_udf(LongType())\ndef g(x: pd.Series) -> pd.Series: return h(x)\n"
        "def f(rows): return g('a')",
        "import pandas as pd\nfrom pyspark.sql import functions as F\nfrom pyspark.sql.types import LongType\n"
        "def h(x): return x + 2\n@F.pandas_udf(LongType())\ndef g(x: pd.Series) -> pd.Series: return h(x)\n"
        "def f(rows): return g('a')",
    ),
    "a class of Spark's types": (
        "from pyspark.sql.types import LongType as T\ndef f(rows): return T()",
        "from pyspark.sql.types import StringType as T\ndef f(rows): return T()",
    ),
    "a processor with state": (
        "from pyspark.sql.streaming import StatefulProcessor\nclass P(StatefulProcessor):\n    def init(self, h): self.n = 1\n"
        "def f(rows): return rows.transformWithStateInPandas(P())",
        "from pyspark.sql.streaming import StatefulProcessor\nclass P(StatefulProcessor):\n    def init(self, h): self.n = 2\n"
        "def f(rows): return rows.transformWithStateInPandas(P())",
    ),
    "a read-only dictionary": (
        "import types\nV = types.MappingProxyType({'a': 1})\ndef f(x): return V",
        "import types\nV = types.MappingProxyType({'a': 2})\ndef f(x): return V",
    ),
    "a namespace": (
        "import types\nV = types.SimpleNamespace(a=1)\ndef f(x): return V",
        "import types\nV = types.SimpleNamespace(a=2)\ndef f(x): return V",
    ),
    "parsed arguments": (
        "import argparse\nV = argparse.Namespace(a=1)\ndef f(x): return V",
        "import argparse\nV = argparse.Namespace(a=2)\ndef f(x): return V",
    ),
    "a deque": (
        "from collections import deque\nV = deque([1])\ndef f(x): return V",
        "from collections import deque\nV = deque([2])\ndef f(x): return V",
    ),
    "how long a deque is": (
        "from collections import deque\nV = deque([1], maxlen=1)\ndef f(x): return V",
        "from collections import deque\nV = deque([1], maxlen=2)\ndef f(x): return V",
    ),
    "what a defaultdict begins with": (
        "from collections import defaultdict as d\ndef one(): return 1\ndef two(): return 2\nV = d([one, two][1 - 1])\ndef f(x): return V",
        "from collections import defaultdict as d\ndef one(): return 1\ndef two(): return 2\nV = d([one, two][2 - 1])\ndef f(x): return V",
    ),
    "a chain of dictionaries": (
        "from collections import ChainMap\nV = ChainMap({'a': 1}, {})\ndef f(x): return V",
        "from collections import ChainMap\nV = ChainMap({'a': 2}, {})\ndef f(x): return V",
    ),
    "a dictionary that wraps one": (
        "from collections import UserDict\nV = UserDict(a=1)\ndef f(x): return V",
        "from collections import UserDict\nV = UserDict(a=2)\ndef f(x): return V",
    ),
    "changeable bytes": (
        "\nV = bytearray([1])\ndef f(x): return V",
        "\nV = bytearray([2])\ndef f(x): return V",
    ),
    "an array of Python's": (
        "import array\nV = array.array('i', [1])\ndef f(x): return V",
        "import array\nV = array.array('i', [2])\ndef f(x): return V",
    ),
    "a template": (
        "import string\nV = string.Template('$1')\ndef f(x): return V",
        "import string\nV = string.Template('$2')\ndef f(x): return V",
    ),
    "a configuration": (
        "import configparser\nc = configparser.ConfigParser()\nV = (c.read_dict({'a': {'b': 1}}), c)\ndef f(x): return V",
        "import configparser\nc = configparser.ConfigParser()\nV = (c.read_dict({'a': {'b': 2}}), c)\ndef f(x): return V",
    ),
    "a table of pandas": (
        "import pandas as pd\nV = pd.DataFrame({'a': ['x'], 'b': [1]})\ndef f(x): return V",
        "import pandas as pd\nV = pd.DataFrame({'a': ['x'], 'b': [2]})\ndef f(x): return V",
    ),
    "the index of a table": (
        "import pandas as pd\nV = pd.DataFrame({'a': ['x']}, index=[1])\ndef f(x): return V",
        "import pandas as pd\nV = pd.DataFrame({'a': ['x']}, index=[2])\ndef f(x): return V",
    ),
    "a series": (
        "import pandas as pd\nV = pd.Series(['x', '1'])\ndef f(x): return V",
        "import pandas as pd\nV = pd.Series(['x', '2'])\ndef f(x): return V",
    ),
    "a time of pandas": (
        "import pandas as pd\nV = pd.Timestamp(2020, 1, 1)\ndef f(x): return V",
        "import pandas as pd\nV = pd.Timestamp(2020, 2, 1)\ndef f(x): return V",
    ),
    "an array of objects": (
        "import numpy as np\nV = np.array([None, 1], dtype=object)\ndef f(x): return V",
        "import numpy as np\nV = np.array([None, 2], dtype=object)\ndef f(x): return V",
    ),
    "a table of Arrow": (
        "import pyarrow as pa\nV = pa.table({'a': ['x', '1']})\ndef f(x): return V",
        "import pyarrow as pa\nV = pa.table({'a': ['x', '2']})\ndef f(x): return V",
    ),
    "an array of Arrow": (
        "import pyarrow as pa\nV = pa.array([1])\ndef f(x): return V",
        "import pyarrow as pa\nV = pa.array([2])\ndef f(x): return V",
    ),
    "a schema of Arrow": (
        "import pyarrow as pa\nV = pa.schema([('a', pa.int64() if 1 > 1 else pa.int32())])\ndef f(x): return V",
        "import pyarrow as pa\nV = pa.schema([('a', pa.int64() if 2 > 1 else pa.int32())])\ndef f(x): return V",
    ),
    "a row of Spark": (
        "from pyspark.sql import Row\nV = Row(a=1)\ndef f(x): return V",
        "from pyspark.sql import Row\nV = Row(a=2)\ndef f(x): return V",
    ),
    "the names of a row": (
        "from pyspark.sql import Row\nV = Row(**{'a1': 1})\ndef f(x): return V",
        "from pyspark.sql import Row\nV = Row(**{'a2': 1})\ndef f(x): return V",
    ),
    "a keyword of a method caller": (
        "import operator\nV = operator.methodcaller('g', key=1)\ndef f(x): return V",
        "import operator\nV = operator.methodcaller('g', key=2)\ndef f(x): return V",
    ),
    "an own list": (
        "class L(list): pass\nV = L([1])\ndef f(x): return V",
        "class L(list): pass\nV = L([2])\ndef f(x): return V",
    ),
    "an own number": (
        "class N(int): pass\nV = N(1)\ndef f(x): return V",
        "class N(int): pass\nV = N(2)\ndef f(x): return V",
    ),
    "an own text": (
        "class T(str): pass\nV = T(1)\ndef f(x): return V",
        "class T(str): pass\nV = T(2)\ndef f(x): return V",
    ),
    "a named tuple": (
        "from typing import NamedTuple\nclass T(NamedTuple):\n    a: int\nV = T(1)\ndef f(x): return V",
        "from typing import NamedTuple\nclass T(NamedTuple):\n    a: int\nV = T(2)\ndef f(x): return V",
    ),
    "an attribute of an own dictionary": (
        "class D(dict): pass\nd = D()\nV = (setattr(d, 'n', 1), d)\ndef f(x): return V",
        "class D(dict): pass\nd = D()\nV = (setattr(d, 'n', 2), d)\ndef f(x): return V",
    ),
    "a hidden slot": (
        "class S:\n    __slots__ = ('__n',)\n    def __init__(self, n): self.__n = n\nV = S(1)\ndef f(x): return V",
        "class S:\n    __slots__ = ('__n',)\n    def __init__(self, n): self.__n = n\nV = S(2)\ndef f(x): return V",
    ),
    "the end of many lists inside of each other": (
        "L = [1]\nfor _ in range(3000): L = [L]\nV = L\ndef f(x): return V",
        "L = [2]\nfor _ in range(3000): L = [L]\nV = L\ndef f(x): return V",
    ),
    "the end of a linked list": (
        "class N:\n    def __init__(self, next): self.next = next\nn = 1\nfor _ in range(2000): n = N(n)\nV = n\ndef f(x): return V",
        "class N:\n    def __init__(self, next): self.next = next\nn = 2\nfor _ in range(2000): n = N(n)\nV = n\ndef f(x): return V",
    ),
    "a date's time zone": (
        "from datetime import datetime, timedelta, timezone\nV = datetime(2020, 1, 1, tzinfo=timezone(timedelta(hours=1)))\ndef f(x): return V",
        "from datetime import datetime, timedelta, timezone\nV = datetime(2020, 1, 1, tzinfo=timezone(timedelta(hours=2)))\ndef f(x): return V",
    ),
    "a method of an own list": (
        "class L(list):\n    def g(self): return 1\nV = L()\ndef f(x): return V",
        "class L(list):\n    def g(self): return 2\nV = L()\ndef f(x): return V",
    ),
    "a method of an own number": (
        "class N(int):\n    def g(self): return 1\nV = N(1)\ndef f(x): return V",
        "class N(int):\n    def g(self): return 2\nV = N(1)\ndef f(x): return V",
    ),
    "a hash of the user": (
        "class C:\n    def __hash__(self): return 1\nV = C\ndef f(x): return V",
        "class C:\n    def __hash__(self): return 2\nV = C\ndef f(x): return V",
    ),
    "a partial method": (
        "from functools import partialmethod\nclass C:\n    def g(self, n): return n\n    h = partialmethod(g, 1)\nV = C\ndef f(x): return V",
        "from functools import partialmethod\nclass C:\n    def g(self, n): return n\n    h = partialmethod(g, 2)\nV = C\ndef f(x): return V",
    ),
    "a method by type": (
        "from functools import singledispatchmethod\nclass C:\n    @singledispatchmethod\n    def g(self, n): return n\n    @g.register\n    def _(self, n: int): return 1\nV = C\ndef f(x): return V",
        "from functools import singledispatchmethod\nclass C:\n    @singledispatchmethod\n    def g(self, n): return n\n    @g.register\n    def _(self, n: int): return 2\nV = C\ndef f(x): return V",
    ),
    "a metaclass": (
        "class M(type):\n    def g(cls): return 1\nclass C(metaclass=M): pass\nV = C\ndef f(x): return V",
        "class M(type):\n    def g(cls): return 2\nclass C(metaclass=M): pass\nV = C\ndef f(x): return V",
    ),
    "what makes a field": (
        "from dataclasses import dataclass, field\n@dataclass\nclass C:\n    a: int = field(default_factory=lambda: 1)\nV = C\ndef f(x): return V",
        "from dataclasses import dataclass, field\n@dataclass\nclass C:\n    a: int = field(default_factory=lambda: 2)\nV = C\ndef f(x): return V",
    ),
    "a field that is compared": (
        "from dataclasses import dataclass, field\n@dataclass\nclass C:\n    a: int = field(default=1, compare=1 == 1)\nV = C\ndef f(x): return V",
        "from dataclasses import dataclass, field\n@dataclass\nclass C:\n    a: int = field(default=1, compare=2 == 1)\nV = C\ndef f(x): return V",
    ),
    "an option of a dataclass": (
        "from dataclasses import dataclass\n@dataclass(order=1 == 1)\nclass C:\n    a: int\nV = C\ndef f(x): return V",
        "from dataclasses import dataclass\n@dataclass(order=2 == 1)\nclass C:\n    a: int\nV = C\ndef f(x): return V",
    ),
    "the order of an enumeration": (
        "import enum\nE = enum.Enum('E', [('A', 1), ('B', 2)][::1 if 1 == 1 else -1], module=__name__)\nV = E\ndef f(x): return V",
        "import enum\nE = enum.Enum('E', [('A', 1), ('B', 2)][::1 if 2 == 1 else -1], module=__name__)\nV = E\ndef f(x): return V",
    ),
    "which helper a name stands for": (
        "def a(x): return x\ndef b(x): return -x\ng = [a, b][1 - 1]\nV = (a, b)\ndef f(x): return a(x), b(x), g(x)",
        "def a(x): return x\ndef b(x): return -x\ng = [a, b][2 - 1]\nV = (a, b)\ndef f(x): return a(x), b(x), g(x)",
    ),
    "which class a name stands for": (
        "class A: pass\nclass B(A): pass\nG = [A, B][1 - 1]\ndef f(x): return A(), B(), G()",
        "class A: pass\nclass B(A): pass\nG = [A, B][2 - 1]\ndef f(x): return A(), B(), G()",
    ),
    "the order of a dictionary": (
        "V = dict([('a.*', 'x'), ('.*', 'y')][::1 if 1 == 1 else -1])\ndef f(x): return V",
        "V = dict([('a.*', 'x'), ('.*', 'y')][::1 if 2 == 1 else -1])\ndef f(x): return V",
    ),
    "the annotation of a pandas UDF": (
        "import pandas as pd\ndef f(x):\n    def g(a: pd.Series) -> pd.Series: return a\n    return g",
        "import pandas as pd\ndef f(x):\n    def g(a: pd.Series) -> float: return a\n    return g",
    ),
    "the type of a dataclass's field": (
        "from dataclasses import dataclass\n@dataclass\nclass C:\n    a: int = 1\ndef f(x): return C",
        "from dataclasses import dataclass\n@dataclass\nclass C:\n    a: float = 1\ndef f(x): return C",
    ),
    "the type of a typed dictionary's key": (
        "from typing import TypedDict\nclass C(TypedDict):\n    a: int\ndef f(x): return C",
        "from typing import TypedDict\nclass C(TypedDict):\n    a: 'float'\ndef f(x): return C",
    ),
    "a bound in an annotation": (
        "from typing import Annotated\nclass G:\n    def __init__(self, n): self.n = n\nclass C:\n    a: Annotated[int, G(1)]\ndef f(x): return C",
        "from typing import Annotated\nclass G:\n    def __init__(self, n): self.n = n\nclass C:\n    a: Annotated[int, G(2)]\ndef f(x): return C",
    ),
    "a field of a class in a list": (
        "from dataclasses import dataclass\n@dataclass\nclass D:\n    b: int\n@dataclass\nclass C:\n    a: 'list[D]'\ndef f(x): return C",
        "from dataclasses import dataclass\n@dataclass\nclass D:\n    b: str\n@dataclass\nclass C:\n    a: 'list[D]'\ndef f(x): return C",
    ),
    "the type of a field of a class inside": (
        "from dataclasses import dataclass\ndef f(x):\n    @dataclass\n    class C:\n        a: int = 1\n    return C",
        "from dataclasses import dataclass\ndef f(x):\n    @dataclass\n    class C:\n        a: float = 1\n    return C",
    ),
    "a format": ("import struct\nV = struct.Struct('<i')\ndef f(x): return V", "import struct\nV = struct.Struct('>i')\ndef f(x): return V"),
    "the last of several formats": (
        "import struct\na, b = struct.Struct('<i'), struct.Struct('>i')\nV = [a, b, a]\ndef f(x): return V",
        "import struct\na, b = struct.Struct('<i'), struct.Struct('>i')\nV = [a, b, b]\ndef f(x): return V",
    ),
    "a view of bytes": ("V = memoryview(b'a')\ndef f(x): return V", "V = memoryview(b'b')\ndef f(x): return V"),
    "the keys of a dictionary": ("V = {'a': 1}.keys()\ndef f(x): return V", "V = {'b': 1}.keys()\ndef f(x): return V"),
    "the values of a dictionary": ("V = {'a': 1}.values()\ndef f(x): return V", "V = {'a': 2}.values()\ndef f(x): return V"),
    "the items of a dictionary": ("V = [{'a': 1}.items()]\ndef f(x): return V", "V = [{'a': 2}.items()]\ndef f(x): return V"),
}  # fmt: skip
