package jpeg

// The factors of the colours times 65536, as libjpeg rounds them.
const (
	redOfCr   = 91881
	greenOfCr = 46802
	greenOfCb = 22554
	blueOfCb  = 116130
)

// A sum of three numbers has blue, red and green of a pixel: what is of luma, which is inLuma times it, and of each of the
// other two in chroma. Blue is in the lower 16 bits, red in the next, green in the upper 32, of which 16 are behind the point.
type sums struct{ cb, cr [256]uint64 }

const (
	inLuma = 1<<48 + 1<<16 + 1
	inByte = 0xff * inLuma

	// beyond are the bits of a sum that are 0 if, and only if, each colour has room in a byte: one that has not has another
	// bit, and what is negative takes from the next.
	beyond = 0xff00_0000_ff00_ff00
)

// chroma is a pointer, because the compiler loads the address of a variable for each pixel.
var chroma = func() *sums {
	var t sums
	for i := range 256 {
		x := i - 128
		t.cr[i] = uint64((redOfCr*x+1<<15)>>16)<<16 - uint64(greenOfCr*x)<<32
		t.cb[i] = uint64((blueOfCb*x+1<<15)>>16) + uint64(1<<15-greenOfCb*x)<<32
	}
	return &t
}()

// pixel returns a pixel's colours.
func pixel(y, cb, cr byte) (r, g, b byte) {
	l, blue, red := int(y)<<16+1<<15, int(cb)-128, int(cr)-128
	return cutOff(l + redOfCr*red), cutOff(l - greenOfCr*red - greenOfCb*blue), cutOff(l + blueOfCb*blue)
}

func cutOff(v int) byte { return byte(min(max(v>>16, 0), 255)) }

// planes makes a row of colours. What is cut off is rare in most pictures, so that some pixels are looked at together.
func planes(r, g, b, luma, cb, cr []byte) {
	const together = 32
	x := 0
	if n := len(r) &^ 15; vectors && n > 0 {
		planesAVX2(&r[0], &g[:n][0], &b[:n][0], &luma[:n][0], &cb[:n][0], &cr[:n][0], n)
		x = n
	}
	for ; x < len(r); x += together {
		n := min(x+together, len(r))
		r, g, b, luma, cb, cr := r[x:n], g[x:n], b[x:n], luma[x:n], cb[x:n], cr[x:n]
		if within(chroma, r, g, b, luma, cb, cr)&beyond != 0 {
			for i := range r {
				r[i], g[i], b[i] = pixel(luma[i], cb[i], cr[i])
			}
		}
	}
}

// within makes colours of which none has to be cut off, two pixels at once, because stores are what it would wait for. A bit of
// the result is beyond if one has to.
func within(t *sums, r, g, b, luma, cb, cr []byte) (all uint64) {
	g, b, luma, cb, cr = g[:len(r)], b[:len(r)], luma[:len(r)], cb[:len(r)], cr[:len(r)]
	x := 0
	for ; x <= len(r)-4; x += 4 { // not a loop of two, which would take a tenth more time
		s := uint64(luma[x])*inLuma + t.cb[cb[x]] + t.cr[cr[x]]
		u := uint64(luma[x+1])*inLuma + t.cb[cb[x+1]] + t.cr[cr[x+1]]
		all |= s | u
		v := s&inByte | u&inByte<<8
		b[x], b[x+1] = byte(v), byte(v>>8)
		r[x], r[x+1] = byte(v>>16), byte(v>>24)
		g[x], g[x+1] = byte(v>>48), byte(v>>56)

		s = uint64(luma[x+2])*inLuma + t.cb[cb[x+2]] + t.cr[cr[x+2]]
		u = uint64(luma[x+3])*inLuma + t.cb[cb[x+3]] + t.cr[cr[x+3]]
		all |= s | u
		v = s&inByte | u&inByte<<8
		b[x+2], b[x+3] = byte(v), byte(v>>8)
		r[x+2], r[x+3] = byte(v>>16), byte(v>>24)
		g[x+2], g[x+3] = byte(v>>48), byte(v>>56)
	}
	for ; x < len(r); x++ {
		s := uint64(luma[x])*inLuma + t.cb[cb[x]] + t.cr[cr[x]]
		all |= s
		r[x], g[x], b[x] = byte(s>>16), byte(s>>48), byte(s)
	}
	return all
}

// pixels makes a row of colours of four bytes.
func pixels(t *sums, to, luma, cb, cr []byte) {
	const together = 32
	cb, cr = cb[:len(luma)], cr[:len(luma)]
	for x := 0; x < len(luma); {
		from, n := x, min(x+together, len(luma))
		var all uint64
		for ; x < n; x++ {
			s := uint64(luma[x])*inLuma + t.cb[cb[x]] + t.cr[cr[x]]
			all |= s
			put4(to, 4*x, uint32(s>>16&0xff|s>>40&0xff00|s<<16)|0xff<<24)
		}
		if all&beyond != 0 {
			for ; from < n; from++ {
				r, g, b := pixel(luma[from], cb[from], cr[from])
				put4(to, 4*from, uint32(r)|uint32(g)<<8|uint32(b)<<16|0xff<<24)
			}
		}
	}
}

func put4(b []byte, x int, v uint32) {
	_ = b[x+3]
	b[x], b[x+1], b[x+2], b[x+3] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
}

// Planes writes the picture's colours into three planes, each of width times height. Grey is the same in all of them, and
// may be asked for by the first alone. A picture of four channels is for Pixels.
func (d *Decoder) Planes(red, green, blue []byte) error {
	w := d.Width
	return d.decode(func(y int, rows *[maxComponents][]byte) {
		to := red[y*w:][:w]
		switch {
		case d.colours == grey:
			copy(to, rows[0])
			if green != nil {
				copy(green[y*w:][:w], to)
				copy(blue[y*w:][:w], to)
			}
		case d.colours == rgb:
			copy(to, rows[0])
			copy(green[y*w:][:w], rows[1])
			copy(blue[y*w:][:w], rows[2])
		default:
			planes(to, green[y*w:][:w], blue[y*w:][:w], rows[0], rows[1], rows[2])
		}
	})
}

// Pixels writes the picture's pixels one after the other: a byte for grey, four for colours, red, green, blue and 255, or
// cyan, magenta, yellow and black, of which 0 is no ink.
func (d *Decoder) Pixels(to []byte) error {
	w := d.Width
	if d.colours == grey {
		return d.Planes(to, nil, nil)
	}
	return d.decode(func(y int, rows *[maxComponents][]byte) {
		to := to[4*y*w:][:4*w]
		a, b, c := rows[0][:w], rows[1][:w], rows[2][:w]
		switch d.colours {
		case rgb:
			for x := range w {
				p := (*[4]byte)(to[4*x:])
				p[0], p[1], p[2], p[3] = a[x], b[x], c[x], 255
			}
		case yCbCr:
			pixels(chroma, to, a, b, c)
		case ycck: // is stored as the colours that are left, as its black is
			k := rows[3][:w]
			for x := range w {
				p := (*[4]byte)(to[4*x:])
				p[0], p[1], p[2] = pixel(a[x], b[x], c[x])
				p[3] = 255 - k[x]
			}
		default:
			k := rows[3][:w]
			for x := range w {
				p := (*[4]byte)(to[4*x:])
				p[0], p[1], p[2], p[3] = 255-a[x], 255-b[x], 255-c[x], 255-k[x]
			}
		}
	})
}
