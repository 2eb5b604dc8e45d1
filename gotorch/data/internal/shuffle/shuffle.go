// Package shuffle is the random order of what comes one after the other, as far as a buffer allows.
package shuffle

import (
	"iter"
	"math/rand/v2"
)

// Buffer holds back Size of what comes, and gives one of them, drawn at random, for each that comes then. What it draws
// depends on how many come, and not on what they are.
type Buffer[T any] struct {
	Size int
	RNG  *rand.Rand
	Held []T
}

// Put takes one in, and gives another one if the buffer was full.
func (b *Buffer[T]) Put(x T) (out T, full bool) {
	if len(b.Held) < b.Size {
		b.Held = append(b.Held, x)
		return out, false
	}
	at := b.RNG.IntN(b.Size)
	out, b.Held[at] = b.Held[at], x
	return out, true
}

// Drain gives one when no more come.
func (b *Buffer[T]) Drain() (out T, more bool) {
	n := len(b.Held)
	if n == 0 {
		return out, false
	}
	at := b.RNG.IntN(n)
	out = b.Held[at]
	b.Held[at] = b.Held[n-1]
	var none T
	b.Held[n-1] = none
	b.Held = b.Held[:n-1]
	return out, true
}

// All yields what is held and what seq yields, to the end.
func (b *Buffer[T]) All(seq iter.Seq[T]) iter.Seq[T] {
	return func(yield func(T) bool) {
		for x := range seq {
			if out, full := b.Put(x); full && !yield(out) {
				return
			}
		}
		b.Rest()(yield)
	}
}

// Rest yields what is held.
func (b *Buffer[T]) Rest() iter.Seq[T] {
	return func(yield func(T) bool) {
		for x, more := b.Drain(); more && yield(x); x, more = b.Drain() {
		}
	}
}
