package imageio

import (
	"bufio"
	"fmt"
	"image"
	"image/color"
	"io"
)

func init() {
	for _, magic := range []string{"P1", "P2", "P3", "P4", "P5", "P6"} {
		image.RegisterFormat("pnm", magic, decodePNM, configPNM)
	}
}

// pnm is the header of a PBM, PGM or PPM file.
type pnm struct {
	kind          byte // '1' to '6'
	width, height int
	most          int // the number that is white
}

func headPNM(r *bufio.Reader) (p pnm, err error) {
	var magic [2]byte
	if _, err := io.ReadFull(r, magic[:]); err != nil {
		return p, err
	}
	p.kind, p.most = magic[1], 1
	fields := []*int{&p.width, &p.height, &p.most}
	if p.kind == '1' || p.kind == '4' {
		fields = fields[:2]
	}
	for _, field := range fields {
		if *field, err = number(r); err != nil {
			return p, err
		}
	}
	if p.most < 1 || p.most > 65535 {
		return p, fmt.Errorf("pnm: its white is %d, and must be from 1 to 65535", p.most)
	}
	return p, nil
}

// number reads a decimal, and one character after it.
func number(r *bufio.Reader) (n int, err error) {
	begun := false
	for {
		c, err := r.ReadByte()
		if err == io.EOF && begun {
			return n, nil
		}
		switch {
		case err != nil:
			return 0, err
		case c == '#':
			if begun {
				return 0, fmt.Errorf("pnm: a comment within a number")
			}
			for c != '\n' && c != '\r' {
				if c, err = r.ReadByte(); err != nil {
					return 0, err
				}
			}
		case c >= '0' && c <= '9':
			if n = n*10 + int(c-'0'); n > 1<<30 {
				return 0, fmt.Errorf("pnm: a number is too large")
			}
			begun = true
		case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f':
			if begun {
				return n, nil
			}
		default:
			return 0, fmt.Errorf("pnm: %q where a number is expected", c)
		}
	}
}

func configPNM(r io.Reader) (image.Config, error) {
	p, err := headPNM(bufio.NewReader(r))
	model := color.GrayModel
	if p.kind == '3' || p.kind == '6' {
		model = color.NRGBAModel
	}
	return image.Config{ColorModel: model, Width: p.width, Height: p.height}, err
}

func decodePNM(from io.Reader) (image.Image, error) {
	r := bufio.NewReader(from)
	p, err := headPNM(r)
	if err != nil {
		return nil, err
	}
	next := func() (int, error) { return number(r) }
	switch {
	case p.kind == '1': // digits that need nothing between them
		next = func() (int, error) {
			for {
				c, err := r.ReadByte()
				switch {
				case err != nil:
					return 0, err
				case c == '0' || c == '1':
					return int(c - '0'), nil
				case c > ' ':
					return 0, fmt.Errorf("pnm: %q where a bit is expected", c)
				}
			}
		}
	case p.kind > '3' && p.most > 255:
		next = func() (int, error) {
			high, err := r.ReadByte()
			if err != nil {
				return 0, err
			}
			low, err := r.ReadByte()
			return int(high)<<8 | int(low), err
		}
	case p.kind > '3':
		next = func() (int, error) {
			c, err := r.ReadByte()
			return int(c), err
		}
	}
	// white returns a number as a part of 255.
	white := func() (byte, error) {
		n, err := next()
		if err == nil && n > p.most {
			err = fmt.Errorf("pnm: %d is more than its white, %d", n, p.most)
		}
		return byte((n*255 + p.most/2) / p.most), err
	}
	frame := image.Rect(0, 0, p.width, p.height)
	switch p.kind {
	case '1', '4':
		picture := image.NewGray(frame)
		for y := range p.height {
			var bits byte
			for x := range p.width {
				bit := 0
				if p.kind == '4' {
					if x%8 == 0 {
						if bits, err = r.ReadByte(); err != nil {
							return nil, err
						}
					}
					bit = int(bits >> (7 - x%8) & 1)
				} else if bit, err = next(); err != nil {
					return nil, err
				}
				picture.Pix[y*picture.Stride+x] = byte(255 * (1 - bit))
			}
		}
		return picture, nil
	case '2', '5':
		picture := image.NewGray(frame)
		for i := range picture.Pix {
			if picture.Pix[i], err = white(); err != nil {
				return nil, err
			}
		}
		return picture, nil
	}
	picture := image.NewNRGBA(frame)
	for i := range picture.Pix {
		if i%4 == 3 {
			picture.Pix[i] = 255
		} else if picture.Pix[i], err = white(); err != nil {
			return nil, err
		}
	}
	return picture, nil
}
