"""Functions of the training tasks that make a list, in the form that `catalogue` reads."""

TEXT = """
running-largest | running largest of items and $k | ints | k=1,2,3,4,5,6,7,8
def $f($xs):
    $m = $k
    $acc = []
    for $x in $xs:
        $m = max($m, $x)
        $acc.append($m)
    return $acc

back-plus | items from last to first plus $k | ints | k=1,2,3,4,5,6,7,8,9
def $f($xs):
    $acc = []
    for $i in range(len($xs) - 1, -1, -1):
        $acc.append($xs[$i] + $k)
    return $acc

head-back | first $k items from last to first | ints | k=1,2,3,4,5
def $f($xs):
    $acc = $xs[:$k]
    return $acc[::-1]

rotate | items after the first $k and then the first $j | ints | j=1,2,3,4 k=1,2,3,4
def $f($xs):
    return $xs[$k:] + $xs[:$j]

split | items $cmp $k then others | ints | op=>,<,>=,<= k=2,3,4,5,6,7,8
def $f($xs):
    $acc = []
    $res = []
    for $x in $xs:
        if $x $op $k:
            $acc.append($x)
        else:
            $res.append($x)
    return $acc + $res

row-once | $k and then items other than the one before | ints | k=0,1,2,3,4,5,6,7,8,9
def $f($xs):
    $acc = [$k]
    for $x in $xs:
        if $x != $acc[-1]:
            $acc.append($x)
    return $acc

between | list of items with $k between | ints | k=0,1,2,3,4,5,6,7,8,9
def $f($xs):
    $acc = []
    for $x in $xs:
        if $acc:
            $acc.append($k)
        $acc.append($x)
    return $acc

window-sums | list of sums of up to $k items from each on | ints | k=2,3,4,5
def $f($xs):
    $acc = []
    for $i in range(len($xs)):
        $acc.append(sum($xs[$i:$i + $k]))
    return $acc

from-first-on | items from the first $cmp $k to the last | ints | op=>,<,>=,<= k=2,3,4,5,6,7
def $f($xs):
    $res = False
    $acc = []
    for $x in $xs:
        if $x $op $k:
            $res = True
        if $res:
            $acc.append($x)
    return $acc

keep-range | list of items at least $j and at most $k | ints | j=1,2,3,4 k=6,7,8,9
def $f($xs):
    $acc = []
    for $x in $xs:
        if $x >= $j and $x <= $k:
            $acc.append($x)
    return $acc

not-among | list of first items not in second times $k | ints ints | k=2,3,4,5,6,7,8,9
def $f($xs, $ys):
    $acc = []
    for $x in $xs:
        if $x in $ys:
            continue
        $acc.append($x * $k)
    return $acc

countdown | numbers over $k from number down by $j | number | j=1,2,3 k=0,4,5
def $f($n):
    $acc = []
    for $i in range($n, $k, -$j):
        $acc.append($i)
    return $acc
"""
