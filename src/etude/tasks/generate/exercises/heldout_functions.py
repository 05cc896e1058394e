"""The functions of the held-out tasks alone, in the form that `catalogue` reads. Only reported figures are measured on these."""

TEXT = """
sum-before | sum of items before the first $cmp $k | ints | op=>,<,>=,<= k=2,3,4,5,6,7,8,9
def $f($xs):
    $acc = 0
    for $x in $xs:
        if $x $op $k:
            return $acc
        $acc += $x
    return $acc

last-index | index of last item $cmp $k or $j | ints | op=>,<,>=,<= k=2,3,4,5,6,7,8,9 j=0,1
def $f($xs):
    $acc = $j
    for $i in range(len($xs)):
        if $xs[$i] $op $k:
            $acc = $i
    return $acc

step-count | count of steps between items $cmp $k | ints | op=>,<,>=,<= k=1,2,3,4
def $f($xs):
    $acc = 0
    for $i in range(1, len($xs)):
        if $xs[$i] - $xs[$i - 1] $op $k:
            $acc += 1
    return $acc

from-back | list of items $cmp $k from last to first | ints | op=>,<,>=,<= k=2,3,4,5,6,7,8,9
def $f($xs):
    $acc = []
    for $x in $xs:
        if $x $op $k:
            $acc = [$x] + $acc
    return $acc

extra-sum | sum of items and $j more for each $cmp $k | ints | op=>,<,>=,<= k=2,3,4,5,6,7,8,9 j=1,2,3,4
def $f($xs):
    $acc = 0
    for $x in $xs:
        $acc += $x
        if $x $op $k:
            $acc += $j
    return $acc

capped | list of items plus $j but at most $k | ints | j=1,2,3,4 k=5,6,7,8,9
def $f($xs):
    $acc = []
    for $x in $xs:
        $acc.append(min($x + $j, $k))
    return $acc

pair-largest | list of largest of pair plus $k | ints ints | k=1,2,3,4,5
def $f($xs, $ys):
    $acc = []
    for $x, $y in zip($xs, $ys):
        $acc.append(max($x, $y) + $k)
    return $acc

pair-branch | first plus $j if $cmp second else second times $k | number number | op=>,<,>=,<= j=1,2,3,4 k=2,3,4,5
def $f($n, $m):
    if $n $op $m:
        return $n + $j
    return $m * $k

rest-sum | sum of numbers up to last with rest $j by $k | number | k=2,3,4 j=0,1,2
def $f($n):
    $acc = 0
    for $i in range($n + 1):
        if $i % $k == $j:
            $acc += $i
    return $acc

letter-after | text with $b after each $a | text | a=a,b,c,d,e b=a,b,c,d,e
def $f($t):
    $acc = ""
    for $c in $t:
        $acc += $c
        if $c == "$a":
            $acc += "$b"
    return $acc

joined-words | text of words with length $cmp $k | words | op=>,<,>=,<= k=1,2,3
def $f($xs):
    $acc = ""
    for $x in $xs:
        if len($x) $op $k:
            $acc += $x
    return $acc

entry-count | count of entries $cmp $k | table | op=>,<,>=,<= k=2,3,4,5,6,7,8
def $f($d):
    $acc = 0
    for $key in $d:
        if $d[$key] $op $k:
            $acc += 1
    return $acc
"""
