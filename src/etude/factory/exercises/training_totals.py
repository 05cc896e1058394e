"""Functions of the training tasks that make one number or a truth of numbers, in the form that `catalogue` reads."""

TEXT = """
longest-run | most items $cmp $k in a row | ints | op=>,<,>=,<= k=2,3,4,5,6,7
def $f($xs):
    $m = 0
    $n = 0
    for $x in $xs:
        $n += 1
        if not $x $op $k:
            $n = 0
        $m = max($m, $n)
    return $m

count-since | count of items after the last $cmp $k | ints | op=>,<,>=,<= k=2,3,4,5,6,7
def $f($xs):
    $acc = 0
    for $x in $xs:
        if $x $op $k:
            $acc = 0
        else:
            $acc += 1
    return $acc

pairs-apart | count of pairs of items that differ by $k | ints | k=1,2,3,4,5,6
def $f($xs):
    $acc = 0
    for $x in $xs:
        for $y in $xs:
            if $x - $y == $k:
                $acc += 1
    return $acc

adds-up | true if any first plus any second is $k | ints ints | k=2,3,4,5,6,7,8,9
def $f($xs, $ys):
    for $x in $xs:
        for $y in $ys:
            if $x + $y == $k:
                return True
    return False

sign-turns | sum of $k and items plus and minus in turn | ints | k=0,1,2,3,4,5,6,7,8,9
def $f($xs):
    $acc = $k
    $n = 1
    for $x in $xs:
        $acc += $x * $n
        $n = -$n
    return $acc

even-count | true if count of items $cmp $k divides by 2 | ints | op=>,<,>=,<= k=2,3,4,5,6,7
def $f($xs):
    $res = True
    for $x in $xs:
        if $x $op $k:
            $res = not $res
    return $res

largest-place | index of largest item plus $k or $j if none | ints | j=0,1 k=2,3,4,5,6
def $f($xs):
    if not $xs:
        return $j
    return $xs.index(max($xs)) + $k

each-before | true if each item is $cmp the one $k before | ints | op=>,<,>=,<=,!= k=1,2,3
def $f($xs):
    for $i in range($k, len($xs)):
        if not $xs[$i] $op $xs[$i - $k]:
            return False
    return True

sum-reaches | first index where running sum is $cmp $k or $j | ints | op=>,>= k=4,5,6,7,8,9 j=0,1
def $f($xs):
    $acc = 0
    for $i in range(len($xs)):
        $acc += $xs[$i]
        if $acc $op $k:
            return $i
    return $j

sum-less | sum of items $cmp $k minus the others | ints | op=>,<,>=,<= k=2,3,4,5,6,7,8
def $f($xs):
    $acc = 0
    for $x in $xs:
        if $x $op $k:
            $acc += $x
        else:
            $acc -= $x
    return $acc

more-than-not | true if more items are $cmp $k than not | ints | op=>,<,>=,<= k=2,3,4,5,6,7
def $f($xs):
    $n = 0
    $m = 0
    for $x in $xs:
        if $x $op $k:
            $n += 1
        else:
            $m += 1
    return $n > $m

met-again | first index met again $k or more after or $j | ints | k=1,2 j=0,5,6,7,8,9
def $f($xs):
    for $i in range(len($xs)):
        if $xs[$i] in $xs[$i + $k:]:
            return $i
    return $j

agree-place | first index with first $cmp second or $k | ints ints | op=>,<,>=,<=,== k=6,7,8,9
def $f($xs, $ys):
    for $i in range(min(len($xs), len($ys))):
        if $xs[$i] $op $ys[$i]:
            return $i
    return $k

largest-divisible | largest of $j and items that divide by $k | ints | k=2,3,4,5 j=0,1
def $f($xs):
    $m = $j
    for $x in $xs:
        if $x % $k == 0 and $x > $m:
            $m = $x
    return $m

divisor | first number from $k to last that divides last or $j | number | k=2,3,4 j=0,1
def $f($n):
    for $i in range($k, $n + 1):
        if $n % $i == 0:
            return $i
    return $j

three-way | $h if first is over second, $j if equal, else $k | number number | j=0,1,2 h=3,4 k=5,6
def $f($n, $m):
    $acc = $k
    if $n > $m:
        $acc = $h
    elif $n == $m:
        $acc = $j
    return $acc

largest-less | largest number times $k minus smallest | number number | k=2,3,4,5,6,7,8,9
def $f($n, $m):
    return max($n, $m) * $k - min($n, $m)

both | true if first is $cmp $k and second is over $j | number number | op=>,<,>=,<= k=4,5,6,7 j=1,2,3
def $f($n, $m):
    return $n $op $k and $m > $j
"""
