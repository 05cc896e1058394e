"""Functions of the training tasks on text, words and tables, in the form that `catalogue` reads."""

TEXT = """
changes | count of changes of letter from $a plus $k | text | a=a,b,c,d,e k=0,1,2,3
def $f($t):
    $acc = $k
    $y = "$a"
    for $c in $t:
        if $c != $y:
            $acc += 1
        $y = $c
    return $acc

from-letter | text from the first $a or $b if none | text | a=a,b,c,d,e b=a,b,c,d,e
def $f($t):
    for $i in range(len($t)):
        if $t[$i] == "$a":
            return $t[$i:]
    return "$b"

back-letters | $a and each $k letter from last to first | text | a=a,b,c,d,e k=2,3,4
def $f($t):
    $acc = "$a"
    for $i in range(len($t) - 1, -1, -$k):
        $acc += $t[$i]
    return $acc

longest | first longest of $a$b and words | words | a=a,b,c,d,e b=a,b,c,d,e
def $f($xs):
    $acc = "$a$b"
    for $x in $xs:
        if len($x) > len($acc):
            $acc = $x
    return $acc

first-places | first index of each word plus $k | words | k=1,2,3,4,5,6
def $f($xs):
    $acc = {}
    for $i in range(len($xs)):
        if $xs[$i] not in $acc:
            $acc[$xs[$i]] = $i + $k
    return $acc

entries-other | entries plus $k but for key $a | table | a=a,b,c,d,e k=1,2,3,4
def $f($d):
    $acc = []
    for $key in $d:
        if $key != "$a":
            $acc.append($d[$key] + $k)
    return $acc

entry-sum | sum of entries of letters or $k each if none | table text | k=0,1,2,3,4,5,6,7,8,9
def $f($d, $t):
    $acc = 0
    for $c in $t:
        $acc += $d.get($c, $k)
    return $acc

word-lengths | length of each word plus $k | words | k=1,2,3,4,5,6,7,8,9
def $f($xs):
    $acc = {}
    for $x in $xs:
        $acc[$x] = len($x) + $k
    return $acc

largest-entry | largest of entries and $k | table | k=1,2,3,4,5,6,7,8
def $f($d):
    $m = $k
    for $key in $d:
        $m = max($m, $d[$key])
    return $m

letter-before | true if $a is in text before any $b | text | a=a,b,c,d,e b=a,b,c,d,e
def $f($t):
    for $c in $t:
        if $c == "$a":
            return True
        if $c == "$b":
            return False
    return False

no-word | true if no word has $a and length $cmp $k | words | op=>,<,>=,<= k=2,3 a=a,b,c,d,e
def $f($xs):
    for $x in $xs:
        if "$a" in $x and len($x) $op $k:
            return False
    return True
"""
