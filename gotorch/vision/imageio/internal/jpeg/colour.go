package jpeg

// A sum of three numbers has red, green and blue of a pixel: what is of each of luma and the colours in tables. Blue is in
// the lower 16 bits, red in the next, green in the upper 32, of which 16 are behind the point. Each has 256 too much, so that
// none is negative.
var ofLuma, ofBlue, ofRed = func() (y, cb, cr [256]uint64) {
	// As libjpeg rounds 1.402, 1.772, 0.71414 and 0.34414, times 65536.
	for i := range 256 {
		x := i - 128
		y[i] = uint64(i)<<48 | uint64(i)<<16 | uint64(i)
		cr[i] = uint64((91881*x+1<<15)>>16+256)<<16 + uint64(256<<16-46802*x)<<32
		cb[i] = uint64((116130*x+1<<15)>>16+256) + uint64(1<<15-22554*x)<<32
	}
	return
}()

// within brings what is from -256 to 767 to what a byte has.
var within = func() (t [1024]byte) {
	for i := range t {
		t[i] = byte(min(max(i-256, 0), 255))
	}
	return
}()

// pixel returns a pixel's colours. Those of a sum that needs no cutting off are in it, but that would be a branch that no
// processor foresees.
func pixel(y, cb, cr byte) (r, g, b byte) {
	s := ofLuma[y] + ofBlue[cb] + ofRed[cr]
	return within[s>>16&1023], within[s>>48&1023], within[s&1023]
}

// Planes writes the picture's colours into three planes, each of width times height. Grey is the same in all of them, and
// may be asked for by the first alone. For a picture of four channels, use Pixels.
func (d *Decoder) Planes(red, green, blue []byte) error {
	w := d.Width
	return d.decode(func(y int, rows *[maxComponents][]byte) {
		to := red[y*w:][:w]
		if d.colours == grey {
			copy(to, rows[0])
			if green != nil {
				copy(green[y*w:][:w], to)
				copy(blue[y*w:][:w], to)
			}
			return
		}
		g, b := green[y*w:][:w], blue[y*w:][:w]
		if d.colours == rgb {
			copy(to, rows[0])
			copy(g, rows[1])
			copy(b, rows[2])
			return
		}
		planes(to, g, b, rows[0], rows[1], rows[2])
	})
}

func planes(r, g, b, luma, cb, cr []byte) {
	g, b, luma, cb, cr = g[:len(r)], b[:len(r)], luma[:len(r)], cb[:len(r)], cr[:len(r)]
	for x := range r {
		r[x], g[x], b[x] = pixel(luma[x], cb[x], cr[x])
	}
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
			for x := range w {
				p := (*[4]byte)(to[4*x:])
				p[0], p[1], p[2] = pixel(a[x], b[x], c[x])
				p[3] = 255
			}
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
