"""The functions of the validation tasks alone, in the form that `catalogue` reads. Settings are chosen on these."""

TEXT = """
first-if | first item $cmp $k or $j | ints | op=>,<,>=,<= k=2,3,4,5,6,7,8,9 j=0,1
def $f($xs):
    for $x in $xs:
        if $x $op $k:
            return $x
    return $j

without-letter | text with $a left out | text | a=a,b,c,d,e
def $f($t):
    $acc = ""
    for $c in $t:
        if $c != "$a":
            $acc += $c
    return $acc

clamp | number but at least $j and at most $k | number | j=1,2,3,4 k=6,7,8,9
def $f($n):
    if $n < $j:
        return $j
    if $n > $k:
        return $k
    return $n

stride-sum | sum of each $k item from $j | ints | j=0,1,2,3 k=2,3,4
def $f($xs):
    $acc = 0
    for $i in range($j, len($xs), $k):
        $acc += $xs[$i]
    return $acc

scale-if | list of items $cmp $k times $j | ints | op=>,<,>=,<= k=2,3,4,5,6,7,8,9 j=1,2,3,4
def $f($xs):
    $acc = []
    for $x in $xs:
        if $x $op $k:
            $acc.append($x * $j)
    return $acc

pair-pick | list of first of pair if $cmp second else $k | ints ints | op=>,<,>=,<= k=1,2,3,4
def $f($xs, $ys):
    $acc = []
    for $x, $y in zip($xs, $ys):
        if $x $op $y:
            $acc.append($x)
        else:
            $acc.append($k)
    return $acc
"""
