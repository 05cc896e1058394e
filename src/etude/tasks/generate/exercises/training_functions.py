"""The functions of the training tasks, in the form that `catalogue` reads.

A block's fifth field lists parameter values that no training or validation task uses: a filling with one of them is a
function of the held-out split.
"""

TEXT = """
sum-if | sum of items $cmp $k | ints | op=>,<,>=,<= k=2,3,4,5,6,7,8,9 | op=!= k=1
def $f($xs):
    $acc = 0
    for $x in $xs:
        if $x $op $k:
            $acc += $x
    return $acc

count-if | count of items $cmp $k | ints | op=>,<,>=,<=,== k=2,3,4,5,6,7,8,9 | op=!= k=1
def $f($xs):
    $acc = 0
    for $x in $xs:
        if $x $op $k:
            $acc += 1
    return $acc

keep-if | list of items $cmp $k | ints | op=>,<,>=,<=,!= k=2,3,4,5,6,7,8,9 | op=== k=1
def $f($xs):
    $acc = []
    for $x in $xs:
        if $x $op $k:
            $acc.append($x)
    return $acc

last-if | last item $cmp $k or $j | ints | op=>,<,>=,<= k=2,3,4,5,6,7,8,9 j=0,1 | op=!= k=1
def $f($xs):
    $acc = $j
    for $x in $xs:
        if $x $op $k:
            $acc = $x
    return $acc

any-if | true if any item $cmp $k | ints | op=>,<,>=,<= k=2,3,4,5,6,7,8,9 | op=== k=1
def $f($xs):
    for $x in $xs:
        if $x $op $k:
            return True
    return False

all-if | true if all items $cmp $k | ints | op=>,<,>=,<= k=2,3,4,5,6,7,8,9 | op=!= k=1
def $f($xs):
    for $x in $xs:
        if not $x $op $k:
            return False
    return True

largest | largest of items and $k | ints | k=2,3,4,5,6,7,8,9 | k=1
def $f($xs):
    $acc = $k
    for $x in $xs:
        if $x > $acc:
            $acc = $x
    return $acc

smallest | smallest of items and $k | ints | k=2,3,4,5,6,7,8,9 | k=1
def $f($xs):
    $acc = $k
    for $x in $xs:
        if $x < $acc:
            $acc = $x
    return $acc

scale | list of items times $k | ints | k=2,3,4,5,6,7,8,9
def $f($xs):
    $acc = []
    for $x in $xs:
        $acc.append($x * $k)
    return $acc

product | product of items and $k | ints | k=2,3,4,5,6,7,8,9 | k=1
def $f($xs):
    $acc = $k
    for $x in $xs:
        $acc *= $x
    return $acc

grade | $j if number $cmp $k else $h | number | op=>,<,>=,<= k=2,3,4,5,6,7,8,9 j=1,2,3,4 h=1,2,3,4 | op===,!=
def $f($n):
    if $n $op $k:
        return $j
    return $h

letter-count | count of $a in text | text | a=a,b,c,d,e
def $f($t):
    $acc = 0
    for $c in $t:
        if $c == "$a":
            $acc += 1
    return $acc

letter-swap | text with $a turned into $b | text | a=a,b,c,d,e b=a,b,c,d,e
def $f($t):
    $acc = ""
    for $c in $t:
        if $c == "$a":
            $acc += "$b"
        else:
            $acc += $c
    return $acc

letter-pair | count of $a and $b in text plus $k | text | a=a,b,c,d,e b=a,b,c,d,e k=1,2,3,4 | k=5,6
def $f($t):
    $acc = $k
    for $c in $t:
        if $c in "$a$b":
            $acc += 1
    return $acc

distinct | first $k distinct items | ints | k=2,3,4,5 | k=1
def $f($xs):
    $acc = []
    for $x in $xs:
        if $x not in $acc and len($acc) < $k:
            $acc.append($x)
    return $acc

every | list of each $k item from $j | ints | k=2,3,4 j=0,1,2,3 | k=5
def $f($xs):
    $acc = []
    for $i in range($j, len($xs), $k):
        $acc.append($xs[$i])
    return $acc

head | first $k items | ints | k=1,2,3,4,5
def $f($xs):
    return $xs[:$k]

tail | items after the first $k | ints | k=1,2,3,4,5
def $f($xs):
    return $xs[$k:]

remainder | count of items with rest $j by $k | ints | k=2,3,4,5 j=0,1,2 | k=6,7
def $f($xs):
    $acc = 0
    for $x in $xs:
        if $x % $k == $j:
            $acc += 1
    return $acc

dot | sum of products plus $k | ints ints | k=2,3,4,5,6,7,8,9 | k=1
def $f($xs, $ys):
    $acc = $k
    for $x, $y in zip($xs, $ys):
        $acc += $x * $y
    return $acc

power | number times $j to the power $k | number | j=1,2,3,4,5 k=2,3,4 | j=6,7
def $f($n):
    $acc = $j
    for $i in range($k):
        $acc *= $n
    return $acc

index | index of first item $cmp $k or $j | ints | op=>,<,>=,<=,== k=2,3,4,5,6,7,8,9 j=0,1 | op=!= k=1
def $f($xs):
    for $i in range(len($xs)):
        if $xs[$i] $op $k:
            return $i
    return $j

word-counts | count of each word from $k | words | k=0,1,2,3,4,5 | k=6,7
def $f($xs):
    $acc = {}
    for $x in $xs:
        $acc[$x] = $acc.get($x, $k) + 1
    return $acc

lookup | entry of key plus $j or $k | table word | j=1,2,3,4 k=0,5,6,7,8,9 | j=6
def $f($d, $key):
    if $key in $d:
        return $d[$key] + $j
    return $k

long-words | list of words with length $cmp $k | words | op=>,<,>=,<= k=1,2,3 | op===
def $f($xs):
    $acc = []
    for $x in $xs:
        if len($x) $op $k:
            $acc.append($x)
    return $acc

starts | count of words with $a at $k | pairs | a=a,b,c,d,e k=0,1
def $f($xs):
    $acc = 0
    for $x in $xs:
        if $x[$k] == "$a":
            $acc += 1
    return $acc

gaps | list of steps between items $k apart | ints | k=1,2,3,4
def $f($xs):
    $acc = []
    for $i in range($k, len($xs)):
        $acc.append($xs[$i] - $xs[$i - $k])
    return $acc

running | list of running sums from $k | ints | k=2,3,4,5,6,7,8,9 | k=1
def $f($xs):
    $acc = $k
    $res = []
    for $x in $xs:
        $acc += $x
        $res.append($acc)
    return $res

divisible | true if number plus $j divides by $k | number | j=1,2,3,4 k=2,3,4,5 | k=6,7
def $f($n):
    return ($n + $j) % $k == 0

near | true if numbers differ by $cmp $k | number number | op=>,<,>=,<= k=1,2,3,4,5 | op=== k=6
def $f($n, $m):
    return abs($n - $m) $op $k

span | sum of numbers from $k to last | number | k=0,1,2,3,4,5 | k=6
def $f($n):
    $acc = 0
    for $i in range($k, $n + 1):
        $acc += $i
    return $acc

replace-if | list of items with $j for those $cmp $k | ints | op=>,<,>=,<= k=2,3,4,5,6,7,8,9 j=0,1 | op=!=
def $f($xs):
    $acc = []
    for $x in $xs:
        if $x $op $k:
            $acc.append($j)
        else:
            $acc.append($x)
    return $acc

pair-count | count of pairs with first $cmp second plus $k | ints ints | op=>,<,>=,<= k=1,2,3,4 | op=== k=5
def $f($xs, $ys):
    $acc = $k
    for $x, $y in zip($xs, $ys):
        if $x $op $y:
            $acc += 1
    return $acc
"""
